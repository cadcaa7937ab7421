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

#include "rows.h"

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

// The sums over the rows of numbers [rows, 3].
template <class T> std::array<double, 3> sums_by_column(const T* numbers, int64_t rows) {
    std::array<double, 3> sums = {};
    for (int64_t i = 0; i < 3 * rows; ++i) sums[i % 3] += numbers[i];
    return sums;
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

// p and grad [rows, classes] -> (dp/dz) grad, and (dp/dorder).grad [rows, 3]. Returns the sums of the latter over all
// rows if `wants_sums`.
std::array<double, 3> map_backward(int64_t bytes, int64_t rows, int64_t classes, Column q, Column r,
                                   Column temperature, Address p, Address grad, Address by_logits, Address by_orders,
                                   bool wants_sums) {
    std::array<double, 3> sums = {};
    with_type(bytes, [&](auto kind) {
        using T = decltype(kind);
        const Results<T> slopes(by_orders, wants_sums ? 3 * rows : 0);
        sharmix::map_backward((const T*)p, (const T*)grad, (T*)by_logits, slopes.data, rows, classes, {q, r, temperature});
        if (wants_sums) sums = sums_by_column(slopes.data, rows);
    });
    return sums;
}

// logits and targets [rows] -> the sum of the losses, or their mean over the rows that count; losses [rows], states
// [rows, 4] of float64, slopes by the orders [rows, 3], and the gradient of the sum or mean. Returns the number of rows
// that count and, if `wants_sums`, the sums of the slopes. If a target is no class, returns minus its row less 1.
std::array<double, 4> class_loss(int64_t bytes, int64_t rows, int64_t classes, Column q, Column r, Column temperature,
                                 Address logits, const int64_t* targets, int64_t ignored, bool is_mean, Address loss,
                                 Address losses, State* states, Address slopes, bool wants_sums, Address gradient) {
    const Targets labels{targets, ignored};
    if (const int64_t outside = labels.first_outside(rows, classes); outside >= 0) return {double(-1 - outside)};
    const double count = double(labels.counted(rows)), divisor = is_mean ? count : 1;
    const double scale = 1 / (divisor ? divisor : 1);
    std::array<double, 3> sums = {};
    with_type(bytes, [&](auto kind) {
        using T = decltype(kind);
        const Results<T> each_loss(losses, rows), each_slope(slopes, wants_sums ? 3 * rows : 0);
        sharmix::class_loss<T>({(const T*)logits, labels, each_loss.data, states, each_slope.data, (T*)gradient, scale,
                                classes, {q, r, temperature}}, rows);
        *(T*)loss = T(std::accumulate(each_loss.data, each_loss.data + rows, 0.0) / divisor);
        if (wants_sums) sums = sums_by_column(each_slope.data, rows);
    });
    return {count, sums[0], sums[1], sums[2]};
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

// Whether the kernel computes this alpha-ReLU. It does if the powers are products.
bool takes_alpha(double alpha, bool is_float) {
    return alpha > 1 && (is_float ? beta_of<float>(alpha) : beta_of<double>(alpha)) > 0;
}

void write_float(Address to, double value) { *static_cast<float*>(to) = float(value); }

// An argument from a Python object. An order is a float, the address of a float64 for each row, or None.
template <class T> T argument(PyObject* object) {
    if constexpr (std::is_same_v<T, Column>) {
        if (PyLong_Check(object)) return {static_cast<const double*>(PyLong_AsVoidPtr(object)), 0};
        return {nullptr, object == Py_None ? UNDEFINED<double> : PyFloat_AsDouble(object)};
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

template <size_t Count> PyObject* object_of(const std::array<double, Count>& results) {
    PyObject* const tuple = PyTuple_New(Count);
    for (size_t i = 0; tuple && i < Count; ++i) PyTuple_SetItem(tuple, Py_ssize_t(i), PyFloat_FromDouble(results[i]));
    return tuple;
}

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
    method<takes_alpha>("takes_alpha"),
    method<write_float>("write_float"),
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
