// The kernel as a Python module. Its functions take numbers and addresses of contiguous memory. The address 0 stands for
// a result that the caller does not want. sharmix/_operators/cpu.py reads the tensors and allocates the results.
//
// The module uses Python's limited API, and of torch one function by its address. So one build works with every Python
// and every torch that the library supports.
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <array>
#include <new>
#include <numeric>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "screen.h"

namespace {

using namespace sharmix;
using Address = void*;

// body(T()) for numbers of 4 or 8 bytes.
template <class Body> void with_type(int64_t bytes, Body body) {
    if (bytes == 4) body(float());
    else body(double());
}

// The caller's memory, or memory of the kernel's own for `count` numbers where the caller wants the sum alone; null if
// there is neither.
template <class T> struct Results {
    Results(Address given, int64_t count)
        : own(given ? 0 : count), data(given ? static_cast<T*>(given) : count ? own.data() : nullptr) {}

    std::vector<T> own;
    T* data;
};

// The addresses of three numbers, one for each order.
using ThreeAddresses = std::array<Address, 3>;

// Writes scale times the sums over the rows of numbers [rows, 3], if they are wanted.
template <class T> void write_sums(const T* numbers, int64_t rows, double scale, const ThreeAddresses& to) {
    if (!to[0]) return;
    std::array<double, 3> sums = {};
    for (int64_t i = 0; i < 3 * rows; ++i) sums[i % 3] += numbers[i];
    for (size_t i = 0; i < 3; ++i) *static_cast<T*>(to[i]) = T(scale * sums[i]);
}

void use_parallel_loop(Address loop) { torch_parallel_for = reinterpret_cast<ParallelFor>(loop); }

// logits [rows, classes] -> p of the same shape, conjugate [rows]
void solve(int64_t bytes, int64_t rows, int64_t classes, Column q, Column r, Column temperature, Address logits,
           Address p, Address conjugate) {
    with_type(bytes, [&](auto kind) {
        using T = decltype(kind);
        sharmix::solve((const T*)logits, (T*)p, (T*)conjugate, rows, classes, {q, r, temperature});
    });
}

// p and grad [rows, classes] -> (dp/dz) grad; and (dp/dorder).grad of each row [rows, 3], or its sums over the rows.
void map_backward(int64_t bytes, int64_t rows, int64_t classes, Column q, Column r, Column temperature, Address p,
                  Address grad, Address by_logits, Address by_orders, Address by_q, Address by_r,
                  Address by_temperature) {
    with_type(bytes, [&](auto kind) {
        using T = decltype(kind);
        const Results<T> slopes(by_orders, by_q ? 3 * rows : 0);
        sharmix::map_backward((const T*)p, (const T*)grad, (T*)by_logits, slopes.data, rows, classes, {q, r, temperature});
        write_sums(slopes.data, rows, 1, {by_q, by_r, by_temperature});
    });
}

// The divisor of a sum of losses: the number of rows that count for a mean, else 1.
double divisor_of(const Targets& targets, int64_t rows, bool is_mean) { return is_mean ? double(targets.counted(rows)) : 1; }

// Writes the sum of the losses divided by `divisor`. Returns the divisor of gradients: the same, or 1 if no row counts.
template <class T> double reduce(const T* losses, int64_t rows, double divisor, Address to) {
    *static_cast<T*>(to) = T(std::accumulate(losses, losses + rows, 0.0) / divisor);
    return divisor ? divisor : 1;
}

// logits and targets [rows] -> the sum of the losses, or their mean over the rows that count; losses [rows], states
// [rows, 4] of float64, slopes by the orders of each row [rows, 3] or those of the sum or mean, and the gradient of the
// sum or mean. Returns the divisor of the gradient. If a target is no class, returns -1 - row.
double class_loss(int64_t bytes, int64_t rows, int64_t classes, Column q, Column r, Column temperature, Address logits,
                  const int64_t* targets, int64_t ignored, bool is_mean, Address loss, Address losses, State* states,
                  Address gradient, Address slopes, Address by_q, Address by_r, Address by_temperature) {
    const Targets labels{targets, ignored};
    if (const int64_t outside = labels.first_outside(rows, classes); outside >= 0) return double(-1 - outside);
    double divisor = divisor_of(labels, rows, is_mean);
    with_type(bytes, [&](auto kind) {
        using T = decltype(kind);
        const Results<T> each_loss(losses, rows), each_slope(slopes, by_q ? 3 * rows : 0);
        const double scale = 1 / (divisor ? divisor : 1);
        sharmix::class_loss<T>({(const T*)logits, labels, each_loss.data, states, each_slope.data, (T*)gradient, scale,
                                classes, {q, r, temperature}}, rows);
        write_sums(each_slope.data, rows, scale, {by_q, by_r, by_temperature});
        divisor = reduce(each_loss.data, rows, divisor, loss);
    });
    return divisor;
}

// grad (p - y)/divisor, with a gradient for each row if `step` is 1, or one for all rows if it is 0. Returns the first
// row whose target is no class, or -1.
int64_t class_loss_backward(int64_t bytes, int64_t rows, int64_t classes, Column q, Column r, Column temperature,
                            Address logits, const int64_t* targets, int64_t ignored, const State* states, Address grad,
                            int64_t step, double divisor, Address by_logits) {
    const Targets labels{targets, ignored};
    const int64_t outside = labels.first_outside(rows, classes);
    if (outside >= 0) return outside;
    with_type(bytes, [&](auto kind) {
        using T = decltype(kind);
        const RowGradient<T> gradient{(const T*)grad, step, divisor};
        sharmix::class_loss_backward((const T*)logits, labels, states, gradient, (T*)by_logits, rows, classes,
                                     {q, r, temperature});
    });
    return outside;
}

// The loss of alpha-ReLU as `class_loss` has it: its sum or mean, and losses [rows].
double alpha_relu_loss(int64_t bytes, int64_t rows, int64_t classes, double alpha, double tau, Address logits,
                       const int64_t* targets, int64_t ignored, bool is_mean, Address loss, Address losses) {
    const Targets labels{targets, ignored};
    if (const int64_t outside = labels.first_outside(rows, classes); outside >= 0) return double(-1 - outside);
    double divisor = divisor_of(labels, rows, is_mean);
    with_type(bytes, [&](auto kind) {
        using T = decltype(kind);
        const Results<T> each_loss(losses, rows);
        sharmix::alpha_relu_loss((const T*)logits, labels, each_loss.data, rows, classes, AlphaReLU<T>(alpha, tau));
        divisor = reduce(each_loss.data, rows, divisor, loss);
    });
    return divisor;
}

// The gradient of this loss. Arguments and result are as for `class_loss_backward`.
int64_t alpha_relu_loss_backward(int64_t bytes, int64_t rows, int64_t classes, double alpha, double tau, Address logits,
                                 const int64_t* targets, int64_t ignored, Address grad, int64_t step, double divisor,
                                 Address by_logits) {
    const Targets labels{targets, ignored};
    const int64_t outside = labels.first_outside(rows, classes);
    if (outside >= 0) return outside;
    with_type(bytes, [&](auto kind) {
        using T = decltype(kind);
        const RowGradient<T> gradient{(const T*)grad, step, divisor};
        sharmix::alpha_relu_loss_backward((const T*)logits, labels, gradient, (T*)by_logits, rows, classes,
                                          AlphaReLU<T>(alpha, tau));
    });
    return outside;
}

// Whether the kernel computes this alpha-ReLU. It does if the powers are products.
bool takes_alpha(double alpha, bool is_float) {
    return alpha > 1 && (is_float ? beta_of<float>(alpha) : beta_of<double>(alpha)) > 0;
}

// For each row the classes that can be in the support, as screen.h has it. The norms are bounds for hidden [2, rows] and for
// the weight [2, classes]: of the errors of the rounded vectors, and of these vectors.
void screen(int64_t rows, int64_t classes, int64_t features, double q, double r, double temperature, Address hidden,
            Address weight, Address bias, Address product, Address hidden_norms, Address weight_norms,
            const int64_t* targets, int64_t room, int64_t* counts, Address logits, Address places, int64_t* own) {
    const auto *of_hidden = (const float*)hidden_norms, *of_weight = (const float*)weight_norms;
    const ScreenedLayer layer{(const float*)hidden, (const float*)weight, (const float*)bias, (const Bfloat16*)product,
                              of_hidden, of_hidden + rows, of_weight, of_weight + classes, classes, features};
    sharmix::screen(layer, targets, {q, r, temperature}, room, counts, (float*)logits, (int32_t*)places, own, rows);
}

// An argument from a Python object. An order is a float, or the address of a float64 for each row.
template <class T> T argument(PyObject* object) {
    if constexpr (std::is_same_v<T, Column>) {
        if (PyLong_Check(object)) return {static_cast<const double*>(PyLong_AsVoidPtr(object)), 0};
        return {nullptr, PyFloat_AsDouble(object)};
    } else if constexpr (std::is_pointer_v<T>) {
        return static_cast<T>(PyLong_AsVoidPtr(object));
    } else if constexpr (std::is_same_v<T, double>) {
        return PyFloat_AsDouble(object);
    } else {
        return T(PyLong_AsLongLong(object));
    }
}

PyObject* object_of(bool result) { return PyBool_FromLong(result); }
PyObject* object_of(int64_t result) { return PyLong_FromLongLong(result); }
PyObject* object_of(double result) { return PyFloat_FromDouble(result); }

// Calls a function with arguments from Python objects, without the interpreter's lock.
template <class Result, class... Arguments, size_t... Places>
PyObject* call(Result (*function)(Arguments...), PyObject* const* given, std::index_sequence<Places...>) {
    const std::tuple<Arguments...> arguments{argument<Arguments>(given[Places])...};
    if (PyErr_Occurred()) return nullptr;
    std::conditional_t<std::is_void_v<Result>, bool, Result> result{};
    bool has_memory = true;
    Py_BEGIN_ALLOW_THREADS;
    try {
        if constexpr (std::is_void_v<Result>) std::apply(function, arguments);
        else result = std::apply(function, arguments);
    } catch (const std::bad_alloc&) {
        has_memory = false;
    }
    Py_END_ALLOW_THREADS;
    return has_memory ? object_of(result) : PyErr_NoMemory();
}

template <class Result, class... Arguments> constexpr Py_ssize_t count_of(Result (*)(Arguments...)) {
    return sizeof...(Arguments);
}

template <auto Function> PyObject* from_python(PyObject*, PyObject* const* given, Py_ssize_t count) {
    constexpr Py_ssize_t needed = count_of(Function);
    if (count != needed) return PyErr_Format(PyExc_TypeError, "%zd arguments are needed, got %zd", needed, count);
    return call(Function, given, std::make_index_sequence<needed>());
}

template <auto Function> constexpr PyMethodDef method(const char* name) {
    return {name, (PyCFunction)(void (*)())from_python<Function>, METH_FASTCALL, nullptr};
}

PyMethodDef methods[] = {
    method<use_parallel_loop>("use_parallel_loop"),
    method<solve>("solve"),
    method<map_backward>("map_backward"),
    method<class_loss>("class_loss"),
    method<class_loss_backward>("class_loss_backward"),
    method<alpha_relu_loss>("alpha_relu_loss"),
    method<alpha_relu_loss_backward>("alpha_relu_loss_backward"),
    method<takes_alpha>("takes_alpha"),
    method<screen>("screen"),
    {nullptr, nullptr, 0, nullptr},
};

#define QUOTED_NAME(name) #name
#define QUOTED(name) QUOTED_NAME(name)

// The docstring is the digest of the sources. By it cpu.py recognises a build of other sources.
PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "sharmix." QUOTED(MODULE), QUOTED(DIGEST), 0, methods, nullptr, nullptr, nullptr, nullptr,
};

}  // namespace

#define INITIALISE_NAMED(name) PyInit_##name
#define INITIALISE(name) INITIALISE_NAMED(name)
PyMODINIT_FUNC INITIALISE(MODULE)(void) {
    PyObject* const module = PyModule_Create(&definition);
#ifdef Py_GIL_DISABLED  // the functions share nothing that changes
    if (module) PyUnstable_Module_SetGIL(module, Py_MOD_GIL_NOT_USED);
#endif
    return module;
}
