// The door to Python: numbers and addresses of contiguous memory in.
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "rows.h"

namespace {

using namespace sharmix;

// Reads positional arguments one after another.
class Arguments {
  public:
    Arguments(PyObject* const* given, Py_ssize_t count) : next_(given), end_(given + count) {}

    int64_t integer() { return ready() ? PyLong_AsLongLong(*next_++) : 0; }
    double number() { return ready() ? PyFloat_AsDouble(*next_++) : 0; }
    void* address() { return ready() ? PyLong_AsVoidPtr(*next_++) : nullptr; }

    Column column() {
        void* values = address();
        return {static_cast<const double*>(values), number()};
    }

    OrderColumns orders() {
        const Column q = column(), r = column(), temperature = column();
        return {q, r, temperature};
    }

    // Whether all were there, and what they were asked as.
    bool complete() {
        if (!PyErr_Occurred() && (missing_ || next_ != end_)) PyErr_SetString(PyExc_TypeError, "wrong number of arguments");
        return !PyErr_Occurred();
    }

  private:
    bool ready() {
        missing_ |= next_ == end_;
        return !missing_;
    }

    PyObject* const* next_;
    PyObject* const* end_;
    bool missing_ = false;
};

// body(T()) for numbers of 4 or 8 bytes, outside the interpreter's lock; -1, where a function found no bad row.
template <class Body> PyObject* run(Arguments& arguments, int64_t bytes, Body body) {
    if (!arguments.complete()) return nullptr;
    bool enough_memory = true;
    Py_BEGIN_ALLOW_THREADS;
    try {
        if (bytes == 4) body(float());
        else body(double());
    } catch (const std::bad_alloc&) {
        enough_memory = false;
    }
    Py_END_ALLOW_THREADS;
    return enough_memory ? PyLong_FromLong(-1) : PyErr_NoMemory();
}

PyObject* use_threads(PyObject*, PyObject* parallel_for) {
    torch_parallel_for = reinterpret_cast<ParallelFor>(PyLong_AsVoidPtr(parallel_for));
    if (PyErr_Occurred()) return nullptr;
    Py_RETURN_NONE;
}

PyObject* solve(PyObject*, PyObject* const* given, Py_ssize_t count) {
    Arguments arguments(given, count);
    const int64_t bytes = arguments.integer(), rows = arguments.integer(), classes = arguments.integer();
    const OrderColumns orders = arguments.orders();
    void *logits = arguments.address(), *probabilities = arguments.address(), *conjugate = arguments.address();
    return run(arguments, bytes, [&](auto kind) {
        using T = decltype(kind);
        sharmix::solve((const T*)logits, (T*)probabilities, (T*)conjugate, rows, classes, orders);
    });
}

PyObject* map_backward(PyObject*, PyObject* const* given, Py_ssize_t count) {
    Arguments arguments(given, count);
    const int64_t bytes = arguments.integer(), rows = arguments.integer(), classes = arguments.integer();
    const OrderColumns orders = arguments.orders();
    void *probabilities = arguments.address(), *grad = arguments.address();
    void *grad_logits = arguments.address(), *grad_parameters = arguments.address();
    return run(arguments, bytes, [&](auto kind) {
        using T = decltype(kind);
        sharmix::map_backward((const T*)probabilities, (const T*)grad, (T*)grad_logits, (T*)grad_parameters, rows,
                              classes, orders);
    });
}

PyObject* class_loss(PyObject*, PyObject* const* given, Py_ssize_t count) {
    Arguments arguments(given, count);
    const int64_t bytes = arguments.integer(), rows = arguments.integer(), classes = arguments.integer();
    const OrderColumns orders = arguments.orders();
    const int64_t ignored = arguments.integer();
    void *logits = arguments.address(), *targets = arguments.address();
    void *loss = arguments.address(), *states = arguments.address(), *slopes = arguments.address();
    if (!arguments.complete()) return nullptr;
    const int64_t outside = first_outside((const int64_t*)targets, ignored, rows, classes);
    if (outside >= 0) return PyLong_FromLongLong(outside);
    return run(arguments, bytes, [&](auto kind) {
        using T = decltype(kind);
        sharmix::class_loss(ClassLoss<T>{(const T*)logits, (const int64_t*)targets, ignored, (T*)loss, (State*)states,
                                         (T*)slopes, classes},
                            rows, orders);
    });
}

PyObject* class_loss_backward(PyObject*, PyObject* const* given, Py_ssize_t count) {
    Arguments arguments(given, count);
    const int64_t bytes = arguments.integer(), rows = arguments.integer(), classes = arguments.integer();
    const Column q = arguments.column();
    const int64_t ignored = arguments.integer();
    void *logits = arguments.address(), *targets = arguments.address(), *states = arguments.address();
    void* grad = arguments.address();
    const int64_t grad_step = arguments.integer();
    void* grad_logits = arguments.address();
    return run(arguments, bytes, [&](auto kind) {
        using T = decltype(kind);
        sharmix::class_loss_backward((const T*)logits, (const int64_t*)targets, ignored, (const State*)states,
                                     (const T*)grad, grad_step, (T*)grad_logits, rows, classes, q);
    });
}

template <class Function> PyCFunction fast(Function function) { return (PyCFunction)(void (*)())function; }

PyMethodDef methods[] = {
    {"use_threads", use_threads, METH_O, nullptr},
    {"solve", fast(solve), METH_FASTCALL, nullptr},
    {"map_backward", fast(map_backward), METH_FASTCALL, nullptr},
    {"class_loss", fast(class_loss), METH_FASTCALL, nullptr},
    {"class_loss_backward", fast(class_loss_backward), METH_FASTCALL, nullptr},
    {nullptr, nullptr, 0, nullptr},
};

#define QUOTED_NAME(name) #name
#define QUOTED(name) QUOTED_NAME(name)

PyModuleDef definition = {PyModuleDef_HEAD_INIT, "sharmix." QUOTED(MODULE), nullptr, 0, methods, nullptr, nullptr, nullptr, nullptr};

}  // namespace

#define INITIALISE_NAMED(name) PyInit_##name
#define INITIALISE(name) INITIALISE_NAMED(name)
PyMODINIT_FUNC INITIALISE(MODULE)(void) { return PyModule_Create(&definition); }
