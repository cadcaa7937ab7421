// What a build of the kernel is asked, in plain types: numbers, and addresses of contiguous memory.
#pragma once

#include <algorithm>
#include <cstdint>

namespace sharmix {

struct Orders {
    double q, r, temperature;
    double delta() const { return std::max(q - 1, 1e-15); }  // whose square a float still holds
    bool operator==(const Orders& other) const { return q == other.q && r == other.r && temperature == other.temperature; }
};

// One value for all rows, or one for each.
struct Column {
    const double* values;
    double value;
    double operator[](int64_t row) const { return values ? values[row] : value; }
};

struct OrderColumns {
    Column q, r, temperature;
    Orders operator[](int64_t row) const { return {q[row], r[row], temperature[row]}; }
    bool shared() const { return !q.values && !r.values && !temperature.values; }
};

// Rows of classes, in numbers of 4 or 8 bytes; what `void*` stands for below.
struct Matrix {
    int64_t bytes, rows, classes;
};

// body(T()) for numbers of 4 or 8 bytes.
template <class Body> void with_type(int64_t bytes, Body body) {
    if (bytes == 4) body(float());
    else body(double());
}

// Of alpha-ReLU: alpha, and tau, the threshold.
struct Threshold {
    double alpha, tau;
    double slope() const { return alpha - 1; }
};

// What the backward pass of the loss needs of a row.
struct State {
    double maximum, unit, scale, total;
};

// The functions of a build; each may throw std::bad_alloc, and nothing else.
struct Kernel {
    // p [rows, classes] and, where there is room for it, the conjugate [rows] of logits.
    void (*solve)(Matrix, const void* logits, OrderColumns, void* probabilities, void* conjugate);
    // (dp/dz) grad, and where there is room for them, (dp/dq).grad, (dp/dr).grad and (dp/dtemperature).grad [rows, 3].
    void (*map_backward)(Matrix, const void* probabilities, const void* grad, OrderColumns, void* grad_logits,
                         void* grad_parameters);
    // The first row whose target is none of the classes and not `ignored`, or -1.
    int64_t (*first_outside)(const int64_t* targets, int64_t ignored, int64_t rows, int64_t classes);
    // The loss [rows] of logits whose targets are classes, 0 where that is `ignored`; the states [rows]; and where there
    // is room for them, the loss' derivatives by q, r and temperature [rows, 3].
    void (*class_loss)(Matrix, const void* logits, const int64_t* targets, int64_t ignored, OrderColumns, void* loss,
                       State* states, void* slopes);
    // grad (p - y), with grad [rows] or, if `grad_step` is 0, one for all.
    void (*class_loss_backward)(Matrix, const void* logits, const int64_t* targets, int64_t ignored, const State* states,
                                const void* grad, int64_t grad_step, Column q, void* grad_logits);
    // Whether the two below take this alpha, for numbers of so many bytes.
    bool (*takes_alpha)(int64_t bytes, double alpha);
    // As class_loss and its backward pass, of alpha-ReLU.
    void (*alpha_relu_loss)(Matrix, const void* logits, const int64_t* targets, int64_t ignored, Threshold, void* loss);
    void (*alpha_relu_loss_backward)(Matrix, const void* logits, const int64_t* targets, int64_t ignored, Threshold,
                                     const void* grad, int64_t grad_step, void* grad_logits);
};

constexpr const char* KERNEL = "sharmix.kernel";  // the name of the capsule that holds one

}  // namespace sharmix
