// The door to Python: numbers and addresses of contiguous memory in.
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "alpha_relu.h"

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

    Matrix matrix() {
        const int64_t bytes = integer(), rows = integer(), classes = integer();
        return {bytes, rows, classes};
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

const Kernel kernel = {
    [](Matrix of, const void* logits, OrderColumns orders, void* probabilities, void* conjugate) {
        with_type(of.bytes, [&](auto kind) {
            using T = decltype(kind);
            sharmix::solve((const T*)logits, (T*)probabilities, (T*)conjugate, of.rows, of.classes, orders);
        });
    },
    [](Matrix of, const void* probabilities, const void* grad, OrderColumns orders, void* grad_logits,
       void* grad_parameters) {
        with_type(of.bytes, [&](auto kind) {
            using T = decltype(kind);
            sharmix::map_backward((const T*)probabilities, (const T*)grad, (T*)grad_logits, (T*)grad_parameters, of.rows,
                                  of.classes, orders);
        });
    },
    first_outside,
    [](Matrix of, const void* logits, const int64_t* targets, int64_t ignored, OrderColumns orders, void* loss,
       State* states, void* slopes) {
        with_type(of.bytes, [&](auto kind) {
            using T = decltype(kind);
            sharmix::class_loss(
                ClassLoss<T>{(const T*)logits, targets, ignored, (T*)loss, states, (T*)slopes, of.classes}, of.rows, orders);
        });
    },
    [](Matrix of, const void* logits, const int64_t* targets, int64_t ignored, const State* states, const void* grad,
       int64_t grad_step, Column q, void* grad_logits) {
        with_type(of.bytes, [&](auto kind) {
            using T = decltype(kind);
            sharmix::class_loss_backward((const T*)logits, targets, ignored, states, (const T*)grad, grad_step,
                                         (T*)grad_logits, of.rows, of.classes, q);
        });
    },
    [](int64_t bytes, double alpha) {
        bool taken = false;
        with_type(bytes, [&](auto kind) { taken = alpha > 1 && beta_of<decltype(kind)>(alpha) > 0; });
        return taken;
    },
    [](Matrix of, const void* logits, const int64_t* targets, int64_t ignored, Threshold threshold, void* loss) {
        with_type(of.bytes, [&](auto kind) {
            using T = decltype(kind);
            sharmix::alpha_relu_loss((const T*)logits, targets, ignored, (T*)loss, of.rows, of.classes, threshold);
        });
    },
    [](Matrix of, const void* logits, const int64_t* targets, int64_t ignored, Threshold threshold, const void* grad,
       int64_t grad_step, void* grad_logits) {
        with_type(of.bytes, [&](auto kind) {
            using T = decltype(kind);
            sharmix::alpha_relu_loss_backward((const T*)logits, targets, ignored, (const T*)grad, grad_step,
                                              (T*)grad_logits, of.rows, of.classes, threshold);
        });
    },
};

// Runs the body outside the interpreter's lock.
template <class Body> PyObject* run(Body body) {
    bool enough_memory = true;
    Py_BEGIN_ALLOW_THREADS;
    try {
        body();
    } catch (const std::bad_alloc&) {
        enough_memory = false;
    }
    Py_END_ALLOW_THREADS;
    if (!enough_memory) return PyErr_NoMemory();
    Py_RETURN_NONE;
}

PyObject* use_threads(PyObject*, PyObject* parallel_for) {
    torch_parallel_for = reinterpret_cast<ParallelFor>(PyLong_AsVoidPtr(parallel_for));
    if (PyErr_Occurred()) return nullptr;
    Py_RETURN_NONE;
}

PyObject* solve(PyObject*, PyObject* const* given, Py_ssize_t count) {
    Arguments arguments(given, count);
    const Matrix of = arguments.matrix();
    const OrderColumns orders = arguments.orders();
    void *logits = arguments.address(), *probabilities = arguments.address(), *conjugate = arguments.address();
    if (!arguments.complete()) return nullptr;
    return run([&] { kernel.solve(of, logits, orders, probabilities, conjugate); });
}

PyObject* map_backward(PyObject*, PyObject* const* given, Py_ssize_t count) {
    Arguments arguments(given, count);
    const Matrix of = arguments.matrix();
    const OrderColumns orders = arguments.orders();
    void *probabilities = arguments.address(), *grad = arguments.address();
    void *grad_logits = arguments.address(), *grad_parameters = arguments.address();
    if (!arguments.complete()) return nullptr;
    return run([&] { kernel.map_backward(of, probabilities, grad, orders, grad_logits, grad_parameters); });
}

PyObject* first_outside_of(PyObject*, PyObject* const* given, Py_ssize_t count) {
    Arguments arguments(given, count);
    const void* targets = arguments.address();
    const int64_t ignored = arguments.integer(), rows = arguments.integer(), classes = arguments.integer();
    if (!arguments.complete()) return nullptr;
    return PyLong_FromLongLong(kernel.first_outside((const int64_t*)targets, ignored, rows, classes));
}

PyObject* class_loss(PyObject*, PyObject* const* given, Py_ssize_t count) {
    Arguments arguments(given, count);
    const Matrix of = arguments.matrix();
    const OrderColumns orders = arguments.orders();
    const int64_t ignored = arguments.integer();
    void *logits = arguments.address(), *targets = arguments.address();
    void *loss = arguments.address(), *states = arguments.address(), *slopes = arguments.address();
    if (!arguments.complete()) return nullptr;
    return run([&] {
        kernel.class_loss(of, logits, (const int64_t*)targets, ignored, orders, loss, (State*)states, slopes);
    });
}

PyObject* class_loss_backward(PyObject*, PyObject* const* given, Py_ssize_t count) {
    Arguments arguments(given, count);
    const Matrix of = arguments.matrix();
    const Column q = arguments.column();
    const int64_t ignored = arguments.integer();
    void *logits = arguments.address(), *targets = arguments.address(), *states = arguments.address();
    void* grad = arguments.address();
    const int64_t grad_step = arguments.integer();
    void* grad_logits = arguments.address();
    if (!arguments.complete()) return nullptr;
    return run([&] {
        kernel.class_loss_backward(of, logits, (const int64_t*)targets, ignored, (const State*)states, grad, grad_step, q,
                                   grad_logits);
    });
}

template <class Function> PyCFunction fast(Function function) { return (PyCFunction)(void (*)())function; }

PyMethodDef methods[] = {
    {"use_threads", use_threads, METH_O, nullptr},
    {"solve", fast(solve), METH_FASTCALL, nullptr},
    {"map_backward", fast(map_backward), METH_FASTCALL, nullptr},
    {"first_outside", fast(first_outside_of), METH_FASTCALL, nullptr},
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
PyMODINIT_FUNC INITIALISE(MODULE)(void) {
    PyObject* module = PyModule_Create(&definition);
    PyObject* capsule = module ? PyCapsule_New(const_cast<sharmix::Kernel*>(&kernel), sharmix::KERNEL, nullptr) : nullptr;
    if (module && PyModule_AddObjectRef(module, "kernel", capsule) < 0) Py_CLEAR(module);
    Py_XDECREF(capsule);
    return module;
}
