// The arguments of the kernel's functions: plain numbers, and addresses of contiguous memory.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

namespace sharmix {

template <class T> constexpr T UNDEFINED = std::numeric_limits<T>::quiet_NaN();

struct Orders {
    double q, r, temperature;
    double delta() const { return std::max(q - 1, 1e-15); }  // a float can hold the square of 1e-15
    bool operator==(const Orders& other) const { return q == other.q && r == other.r && temperature == other.temperature; }
};

// An order: one value for all rows, or one value for each row.
struct Column {
    const double* values;
    double value;
    double operator[](int64_t row) const { return values ? values[row] : value; }
};

// The orders of each row.
struct OrderColumns {
    Column q, r, temperature;
    Orders operator[](int64_t row) const { return {q[row], r[row], temperature[row]}; }
    bool shared() const { return !q.values && !r.values && !temperature.values; }
};

// The class of each row. Rows with the class `ignored` are left out.
struct Targets {
    const int64_t* classes;
    int64_t ignored;

    bool counts(int64_t row) const { return classes[row] != ignored; }

    int64_t counted(int64_t rows) const { return rows - std::count(classes, classes + rows, ignored); }

    // The first row whose class is not one of `count` classes; -1 if there is none.
    int64_t first_outside(int64_t rows, int64_t count) const {
        for (int64_t row = 0; row < rows; ++row)
            if (counts(row) && (classes[row] < 0 || classes[row] >= count)) return row;
        return -1;
    }
};

// The gradient of each row's loss, divided by a number. With a step of 0, all rows have the same gradient.
template <class T> struct RowGradient {
    const T* values;
    int64_t step;
    double divisor;
    T operator[](int64_t row) const { return T(values[row * step] / divisor); }
};

// The numbers of a row that the backward pass of the loss needs; total is NaN if plain torch solved the row.
struct State {
    double maximum, unit, scale, total;
};

}  // namespace sharmix
