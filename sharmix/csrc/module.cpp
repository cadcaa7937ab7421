// The kernel's functions on tensors. Orders q, r and temperature are floats, or tensors of float64 [rows, 1]; those of
// alpha-ReLU are alpha, None and tau, floats.
#include "tensors.h"

#include <array>
#include <numeric>
#include <optional>
#include <vector>

#include "rows.h"

namespace {

using namespace sharmix;
using Given = PyObject* const*;

template <class... Objects> Object packed(const Objects&... objects) {
    return Object(PyTuple_Pack(sizeof...(objects), objects.get()...));
}

Object none() { return Object(Py_NewRef(Py_None)); }

OrderColumns orders_at(Given given, int64_t rows) {
    return {column(given[0], rows), column(given[1], rows), column(given[2], rows)};
}

// How the numbers [rows, 3] by q, r and temperature are handed over: not at all, one for each row, or summed.
enum class By { none, row, sum };

// Room for them.
struct ByOrders {
    ByOrders(By by, const Rows& rows) : by(by), rows(rows.of.rows) {
        if (by == By::row) tensor = rows.empty_rows(3);
        if (by == By::row) data = memory(tensor.get(), this->rows);
    }

    template <class T> T* room() {
        if (by == By::sum) own.reset(new double[3 * rows]());
        return by == By::sum ? reinterpret_cast<T*>(own.get()) : static_cast<T*>(data);
    }

    template <class T> void add_up() {
        const T* numbers = reinterpret_cast<const T*>(own.get());
        for (int64_t i = 0; by == By::sum && i < 3 * rows; ++i) sums[i % 3] += numbers[i];
    }

    Object handed_over() const {
        if (by == By::sum) return Object(Py_BuildValue("ddd", sums[0], sums[1], sums[2]));
        return by == By::row ? Object(Py_NewRef(tensor.get())) : none();
    }

    By by;
    int64_t rows;
    Object tensor;
    void* data = nullptr;
    std::unique_ptr<double[]> own;
    std::array<double, 3> sums = {};
};

// (logits, q, r, temperature, wants_conjugate) -> p, or p and the conjugate [...]
Object solve(Given given) {
    const Rows logits(given[0]);
    const OrderColumns orders = orders_at(given + 1, logits.of.rows);
    Object p = logits.empty_like(), conjugate;
    if (given[4] == Py_True) conjugate = logits.empty_rows();
    void *to = memory(p.get(), 0), *conjugate_to = conjugate.get() ? memory(conjugate.get(), 0) : nullptr;
    run(logits.of.bytes, [&](auto kind) {
        using T = decltype(kind);
        sharmix::solve((const T*)logits.data, (T*)to, (T*)conjugate_to, logits.of.rows, logits.of.classes, orders);
    });
    return conjugate.get() ? packed(p, conjugate) : std::move(p);
}

Object pulled_back(const Rows& p, const Rows& grad, const OrderColumns& orders, ByOrders& along) {
    if (grad.of.bytes != p.of.bytes || grad.of.rows != p.of.rows || grad.of.classes != p.of.classes) {
        PyErr_SetString(PyExc_RuntimeError, "the gradient of a map has the shape and dtype of its probabilities");
        throw PythonError();
    }
    Object by_logits = p.empty_like();
    void* to = memory(by_logits.get(), 0);
    run(p.of.bytes, [&](auto kind) {
        using T = decltype(kind);
        sharmix::map_backward((const T*)p.data, (const T*)grad.data, (T*)to, along.room<T>(), p.of.rows, p.of.classes, orders);
        along.add_up<T>();
    });
    return by_logits;
}

// (p, grad, q, r, temperature, by row) -> (dp/dz) grad, and (dp/dorder).grad
Object map_backward(Given given) {
    const Rows p(given[0]), grad(given[1]);
    ByOrders along(given[5] == Py_True ? By::row : By::none, p);
    const Object by_logits = pulled_back(p, grad, orders_at(given + 2, p.of.rows), along);
    return packed(by_logits, along.handed_over());
}

// A number as a tensor of no dimension, like another.
Object scalar(double value, PyObject* like) {
    const Object shape(PyTuple_New(0)), number(PyFloat_FromDouble(value));
    return call(like, new_full, shape.get(), number.get());
}

// A number as a tensor like one of no dimension; where its memory is at hand, a write is faster than torch's.
Object number_like(double value, PyObject* tensor) {
    const bool is_at_hand = is_true(attribute(tensor, is_cpu)) && !integer(call(tensor, dim).get());
    if (!is_at_hand || attribute(tensor, dtype_name).get() != torch_objects.float32) return scalar(value, tensor);
    Object made(PyObject_CallFunctionObjArgs(torch_objects.empty_like, tensor, nullptr));
    *static_cast<float*>(memory(made.get(), 1)) = float(value);
    return made;
}

// Where grad can be pulled back at once, and nobody will differentiate that again. One that is all zero has no memory.
bool is_common_gradient(PyObject* grad, const Rows& like) {
    const Object enabled(PyObject_CallNoArgs(torch_objects.grad_enabled));
    if (is_true(enabled) || !is_tensor(grad) || !is_alone()) return false;
    const Object dtype = attribute(grad, dtype_name), own = attribute(like.object.get(), dtype_name);
    return dtype.get() == own.get() && is_plain(grad);
}

// The orders of a node: their values, and as they were given.
struct NodeOrders {
    NodeOrders(PyObject* found, PyObject* given) {
        for (Py_ssize_t i = 0; i < 3; ++i) {
            values[i] = number_or_none(PyTuple_GetItem(found, i));
            if (PyObject* order = PyTuple_GetItem(given, i); is_tensor(order)) tensors[i] = order;
        }
    }

    By by() const { return tensors[0] || tensors[1] || tensors[2] ? By::sum : By::none; }
    OrderColumns columns() const { return {{nullptr, values[0]}, {nullptr, values[1]}, {nullptr, values[2]}}; }

    // What a backward pass returns: the logits' gradient, so many times None, and for each tensor factor times its sum.
    Object gradients(Object by_logits, Py_ssize_t nones, const double* sums, double factor) const {
        Object all(PyTuple_New(4 + nones));
        PyTuple_SetItem(all.get(), 0, by_logits.release());
        for (Py_ssize_t i = 0; i < nones; ++i) PyTuple_SetItem(all.get(), 1 + i, none().release());
        for (Py_ssize_t i = 0; i < 3; ++i)
            PyTuple_SetItem(all.get(), 1 + nones + i, (tensors[i] ? number_like(factor * sums[i], tensors[i]) : none()).release());
        return all;
    }

    std::array<double, 3> values;
    std::array<PyObject*, 3> tensors = {};  // null where an order is a number
};

// (p, grad, the orders' values, these as given) -> the gradients of all that was given, or None where more is asked for
Object map_gradients(Given given) {
    const Rows p(given[0]);
    if (!is_common_gradient(given[1], p)) return none();
    const Rows grad(given[1]);
    const NodeOrders orders(given[2], given[3]);
    ByOrders along(orders.by(), p);
    Object by_logits = pulled_back(p, grad, orders.columns(), along);
    return orders.gradients(std::move(by_logits), 1, along.sums.data(), 1);
}

// The classes [...] int64 of rows, one of which is left out.
struct TargetRows {
    TargetRows(PyObject* tensor, PyObject* ignored, const Rows& logits)
        : numbers(tensor, torch_objects.int64, logits.of.rows),
          targets{static_cast<const int64_t*>(numbers.data), integer(ignored)} {
        const int64_t outside = targets.first_outside(logits.of.rows, logits.of.classes);
        if (outside < 0) return;
        const Object row(PyLong_FromLongLong(outside));
        PyErr_SetObject(PyExc_LookupError, row.get());  // Python names the label
        throw PythonError();
    }

    Object counted(const Rows& logits) const { return Object(PyLong_FromLongLong(targets.counted(logits.of.rows))); }

    Numbers numbers;
    Targets targets;
};

// The gradient of each row's loss, or one for all.
struct RowGradients {
    RowGradients(PyObject* grad, PyObject* divisor, const Rows& logits)
        : numbers(grad, logits.dtype(), 1), divisor(number(divisor)), step(numbers.count > 1) {
        if (!step || numbers.count == logits.of.rows) return;
        PyErr_SetString(PyExc_RuntimeError, "a loss has one gradient, or one for each row");
        throw PythonError();
    }

    template <class T> RowGradient<T> as() const { return {static_cast<const T*>(numbers.data), step, divisor}; }

    Numbers numbers;
    double divisor;
    int64_t step;
};

// The losses of rows, each by itself or summed.
struct Losses {
    Losses(bool by_row, const Rows& logits) : rows(logits.of.rows) {
        if (!by_row) return;
        tensor = logits.empty_rows();
        data = memory(tensor.get(), rows);
    }

    // losses(room) fills room for them.
    template <class T, class Fill> void take(Fill losses) {
        std::unique_ptr<T[]> own(data ? nullptr : new T[rows]);
        T* room = data ? static_cast<T*>(data) : own.get();
        losses(room);
        if (!data) sum = std::accumulate(room, room + rows, 0.0);
    }

    Object handed_over() const { return tensor.get() ? Object(Py_NewRef(tensor.get())) : Object(PyFloat_FromDouble(sum)); }

    int64_t rows;
    Object tensor;
    void* data = nullptr;
    double sum = 0;
};

// The loss of each row's class, and what its backward pass needs: states, or if `scale` is not 0 the gradient itself times
// that, or for alpha-ReLU None.
struct ClassLosses {
    ClassLosses(const Rows& logits, const TargetRows& classes, const OrderColumns& orders, bool by_row, By by, double scale)
        : losses(by_row, logits), slopes(by, logits),
          kept(orders.of_alpha_relu() ? none() : scale ? logits.empty_like() : logits.empty_rows(4, torch_objects.doubles)) {
        void* to = orders.of_alpha_relu() ? nullptr : memory(kept.get(), logits.of.rows);
        run(logits.of.bytes, [&](auto kind) {
            using T = decltype(kind);
            losses.take<T>([&](T* room) {
                const ClassLoss<T> asked{(const T*)logits.data, classes.targets, room, scale ? nullptr : (State*)to,
                                         slopes.room<T>(), scale ? (T*)to : nullptr, scale, logits.of.classes,
                                         orders};
                sharmix::class_loss(asked, logits.of.rows);
            });
            slopes.add_up<T>();
        });
    }

    Losses losses;
    ByOrders slopes;
    Object kept;
};

// (logits, targets, q, r, temperature, ignored, losses by row, slopes by row)
// -> losses or their sum, how many count, states [..., 4], slopes by q, r and temperature
Object class_loss(Given given) {
    const Rows logits(given[0]);
    const TargetRows classes(given[1], given[5], logits);
    const ClassLosses found(logits, classes, orders_at(given + 2, logits.of.rows), given[6] == Py_True,
                            given[7] == Py_True ? By::row : By::none, 0);
    return packed(found.losses.handed_over(), classes.counted(logits), found.kept, found.slopes.handed_over());
}

constexpr int64_t SMALL = 1 << 15;  // logits, up to which a gradient is worth keeping from the forward pass

// (logits, targets, ignored, whether it is a mean, whether the logits want a gradient, the orders' values, these as given)
// -> loss, the states or None, the gradient or None, what its sum was divided by, sums of slopes
Object class_loss_of_node(Given given) {
    const Rows logits(given[0]);
    const NodeOrders orders(given[5], given[6]);
    const TargetRows classes(given[1], given[2], logits);
    const double count = double(classes.targets.counted(logits.of.rows)), divisor = given[3] == Py_True ? count : 1;
    const OrderColumns columns = orders.columns();
    const bool small = given[4] == Py_True && !columns.of_alpha_relu() && logits.of.rows * logits.of.classes <= SMALL;
    const ClassLosses found(logits, classes, columns, false, orders.by(), small ? 1 / (divisor ? divisor : 1) : 0);
    const double value = found.losses.sum / divisor;
    const Object loss = logits.of.bytes == 4 ? number_like(value, torch_objects.single) : scalar(value, logits.object.get());
    const Object divided(PyFloat_FromDouble(divisor ? divisor : 1)), without = none();
    return packed(loss, small ? without : found.kept, small ? found.kept : without, divided, found.slopes.handed_over());
}

// grad (p - y)/divisor of logits; given beside them from 1 on: targets, states, grad, ignored, divisor
Object class_loss_by_logits(const Rows& logits, Given given, const OrderColumns& orders) {
    const TargetRows classes(given[1], given[4], logits);
    const RowGradients grad(given[3], given[5], logits);
    std::optional<Numbers> states;
    if (!orders.of_alpha_relu()) states.emplace(given[2], torch_objects.float64, 4 * logits.of.rows);
    Object by_logits = logits.empty_like();
    void* to = memory(by_logits.get(), 0);
    run(logits.of.bytes, [&](auto kind) {
        using T = decltype(kind);
        const State* kept = states ? static_cast<const State*>(states->data) : nullptr;
        sharmix::class_loss_backward((const T*)logits.data, classes.targets, kept, grad.as<T>(), (T*)to, logits.of.rows,
                                     logits.of.classes, orders);
    });
    return by_logits;
}

// (logits, targets, states, grad, ignored, divisor, q, r, temperature) -> grad (p - y)/divisor, for grad [...] or one for all
// rows
Object class_loss_backward(Given given) {
    const Rows logits(given[0]);
    return class_loss_by_logits(logits, given, orders_at(given + 6, logits.of.rows));
}

// Multiplies a tensor that nobody else has.
void multiply(const Rows& own, double factor) {
    if (factor == 1) return;
    with_type(own.of.bytes, [&](auto kind) {
        using T = decltype(kind);
        T* entries = static_cast<T*>(own.data);
        std::transform(entries, entries + own.of.rows * own.of.classes, entries, [=](T x) { return x * T(factor); });
    });
}

// (logits, targets, states or None, grad, ignored, divisor, the gradient to be given away or None, sums of slopes, the orders'
// values, these as given) -> the gradients of all that was given, or None where more is asked for
Object class_loss_gradients(Given given) {
    const Rows logits(given[0]);
    if (!is_common_gradient(given[3], logits)) return none();
    const NodeOrders orders(given[8], given[9]);
    const OrderColumns columns = orders.columns();
    const bool has_states = given[2] != Py_None || columns.of_alpha_relu();
    const double factor = !has_states || orders.by() == By::sum ? value_of(given[3]) : 1, divisor = number(given[5]);
    Object by_logits;
    if (has_states) {
        by_logits = class_loss_by_logits(logits, given, columns);
    } else {
        if (given[6] != Py_None) by_logits = Object(Py_NewRef(given[6]));
        else by_logits = std::move(ClassLosses(logits, {given[1], given[4], logits}, columns, false, By::none, 1 / divisor).kept);
        multiply(Rows(by_logits.get()), factor);
    }
    std::array<double, 3> sums = {};
    if (orders.by() == By::sum)
        for (Py_ssize_t i = 0; i < 3; ++i) sums[i] = number(PyTuple_GetItem(given[7], i)) / divisor;
    return orders.gradients(std::move(by_logits), 4, sums.data(), factor);
}

// Whether alpha-ReLU is worth a kernel: where its powers are products.
bool is_common_alpha(double alpha, bool is_float) {
    return alpha > 1 && (is_float ? beta_of<float>(alpha) : beta_of<double>(alpha)) > 0;
}

// (alpha, whether numbers are float32) -> whether the kernel computes this alpha-ReLU
Object takes_alpha(Given given) { return Object(PyBool_FromLong(is_common_alpha(number(given[0]), given[1] == Py_True))); }

// Whether targets are plain int64, one for each row of logits.
bool are_common_targets(PyObject* targets, PyObject* logits) {
    if (!is_plain(targets) || attribute(targets, dtype_name).get() != torch_objects.int64) return false;
    const Object own = attribute(targets, shape_name), shape = attribute(logits, shape_name);
    const Object rows(PySequence_GetSlice(shape.get(), 0, PyTuple_Size(shape.get()) - 1));
    return PyObject_RichCompareBool(own.get(), rows.get(), Py_EQ) == 1;
}

bool is_learned(PyObject* order) { return is_tensor(order) && is_true(attribute(order, requires_grad)); }

constexpr double MOST_R = 12;  // any number of classes to the power of r - 1 is a double; else Python counts them

// (logits, targets or None, q, r, temperature) -> the orders' values if the kernel is to be called at once, past torch's
// dispatcher, or None; for q > 2 plain torch measures better
Object node_orders(Given given) {
    if (!is_alone() || !is_plain(given[0]) || !integer(call(given[0], dim).get())) return none();
    const bool may_be_half = given[1] != Py_None;  // a map has its logits' dtype
    if (!is_real(given[0]) && !(may_be_half && is_half(attribute(given[0], dtype_name)))) return none();
    if (given[1] != Py_None && !are_common_targets(given[1], given[0])) return none();
    const double q = value_of(given[2]), r = value_of(given[3]), temperature = value_of(given[4]);
    if (given[3] == Py_None && given[1] != Py_None) {
        const bool is_float = attribute(given[0], dtype_name).get() != torch_objects.float64;
        if (!is_common_alpha(q, is_float) || !std::isfinite(temperature) || is_learned(given[2]) || is_learned(given[4]))
            return none();
        return Object(Py_BuildValue("dOd", q, Py_None, temperature));
    }
    if (!(1 <= q && q <= 2 && 0 < r && r <= MOST_R && 0 < temperature && std::isfinite(temperature))) return none();
    return Object(Py_BuildValue("ddd", q, r, temperature));
}

// (address of torch's parallel loop, then the members of Torch)
Object use_torch(Given given) {
    torch_parallel_for = reinterpret_cast<ParallelFor>(PyLong_AsVoidPtr(given[0]));
    PyObject** objects = reinterpret_cast<PyObject**>(&torch_objects);
    for (size_t i = 0; i < sizeof(Torch) / sizeof(PyObject*); ++i) objects[i] = Py_NewRef(given[1 + i]);
    return none();
}

template <auto Function, Py_ssize_t Count> constexpr PyMethodDef method(const char* name) {
    return {name, (PyCFunction)(void (*)())door<Function, Count>, METH_FASTCALL, nullptr};
}

PyMethodDef methods[] = {
    method<use_torch, 1 + sizeof(Torch) / sizeof(PyObject*)>("use_torch"),
    method<node_orders, 5>("node_orders"),
    method<map_gradients, 4>("map_gradients"),
    method<class_loss_gradients, 10>("class_loss_gradients"),
    method<solve, 5>("solve"),
    method<map_backward, 6>("map_backward"),
    method<class_loss, 8>("class_loss"),
    method<class_loss_of_node, 7>("class_loss_of_node"),
    method<class_loss_backward, 9>("class_loss_backward"),
    method<takes_alpha, 2>("takes_alpha"),
    {nullptr, nullptr, 0, nullptr},
};

#define QUOTED_NAME(name) #name
#define QUOTED(name) QUOTED_NAME(name)

PyModuleDef definition = {PyModuleDef_HEAD_INIT, "sharmix." QUOTED(MODULE), nullptr, 0, methods, nullptr, nullptr, nullptr, nullptr};

}  // namespace

#define INITIALISE_NAMED(name) PyInit_##name
#define INITIALISE(name) INITIALISE_NAMED(name)
PyMODINIT_FUNC INITIALISE(MODULE)(void) { return PyModule_Create(&definition); }
