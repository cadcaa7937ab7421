// What is computed of each row of a matrix, row after row, on torch's threads.
#pragma once

#include "gradients.h"

namespace sharmix {

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

// torch's own thread pool, by the C interface that torch keeps stable: (begin, end, grain, body, its context).
using ParallelFor = int32_t (*)(int64_t, int64_t, int64_t, void (*)(int64_t, int64_t, void*), void*);
inline ParallelFor torch_parallel_for = nullptr;

constexpr int64_t GRAIN = 16384;  // entries that are worth a thread

template <class Body> void for_rows(int64_t rows, int64_t classes, Body body) {
    const auto call = [](int64_t begin, int64_t end, void* context) { (*static_cast<Body*>(context))(begin, end); };
    torch_parallel_for(0, rows, std::max<int64_t>(1, GRAIN / classes), call, &body);
}

template <class T> constexpr T UNDEFINED = std::numeric_limits<T>::quiet_NaN();

// Whether rows are solved in groups: short ones, of the same orders.
template <class T> bool grouped(const OrderColumns& orders, int64_t rows, int64_t classes) {
    return orders.shared() && rows > 1 && GroupSolver<T>::takes(orders[0], classes);
}

// body(start, count) for the groups from one row to another.
template <class Body> void for_groups(int64_t begin, int64_t end, Body body) {
    for (int64_t start = begin; start < end; start += GROUP) body(start, std::min(GROUP, end - start));
}

template <class T> void write(T* three, double q, double r, double temperature) {
    three[0] = T(q);
    three[1] = T(r);
    three[2] = T(temperature);
}

template <class T> void write(T* three, int64_t count, const ParameterGradients<Doubles>& gradients) {
    for (int64_t lane = 0; lane < count; ++lane)
        write(three + 3 * lane, gradients.q[lane], gradients.r[lane], gradients.temperature[lane]);
}

// One class of a group of rows, to its places in them.
template <class T> void scatter(Doubles column, T* place, int64_t count, int64_t classes) {
    for (int64_t lane = 0; lane < count; ++lane) place[lane * classes] = T(column[lane]);
}

template <class T>
void solve_groups(const T* logits, T* probabilities, T* conjugate, int64_t begin, int64_t end, int64_t classes,
                  const Orders& orders) {
    GroupSolver<T> solver(orders, classes);
    for_groups(begin, end, [&](int64_t start, int64_t count) {
        const Doubles solved = solver.solve(logits + start * classes, count).conjugate;
        for (int64_t i = 0; i < classes; ++i)
            scatter(solver.probability(i), probabilities + start * classes + i, count, classes);
        scatter(solved, conjugate + start, count, 1);
    });
}

// p [rows, classes] and the conjugate [rows] of logits.
template <class T>
void solve(const T* logits, T* probabilities, T* conjugate, int64_t rows, int64_t classes, OrderColumns orders) {
    const bool in_groups = grouped<T>(orders, rows, classes);
    for_rows(rows, classes, [&](int64_t begin, int64_t end) {
        if (in_groups) return solve_groups(logits, probabilities, conjugate, begin, end, classes, orders[0]);
        RowSolver<T> solver(classes);
        for (int64_t row = begin; row < end; ++row) {
            const Solution<double>& solved = solver.solve(logits + row * classes, orders[row]);
            T* p = probabilities + row * classes;
            std::fill_n(p, classes, std::isnan(solved.total) ? UNDEFINED<T> : T(0));
            for (int64_t i = 0; i < solver.count(); ++i) p[solver.place(i)] = solver.probability(i);
            conjugate[row] = T(solved.conjugate);
        }
    });
}

template <class T>
void map_backward_groups(const T* probabilities, const T* grad, T* grad_logits, T* grad_parameters, int64_t begin,
                         int64_t end, int64_t classes, const Orders& orders) {
    std::unique_ptr<double[]> p(new double[classes * GROUP]), direction(new double[classes * GROUP]);
    for_groups(begin, end, [&](int64_t start, int64_t count) {
        transpose(probabilities + start * classes, count, classes, p.get());
        transpose(grad + start * classes, count, classes, direction.get());
        for (int64_t j = 0; j < classes * GROUP; j += GROUP) {
            const Doubles own = load<double>(p.get() + j), given = load<double>(direction.get() + j);
            store(direction.get() + j, own > 0 ? given : own);  // 0 off the support, NaN where p is
        }
        ParameterGradients<Doubles> parameters;
        pull_back<ManyRows>(p.get(), direction.get(), classes * GROUP, orders, grad_parameters ? &parameters : nullptr);
        for (int64_t i = 0; i < classes; ++i)
            scatter(load<double>(direction.get() + i * GROUP), grad_logits + start * classes + i, count, classes);
        if (grad_parameters) write(grad_parameters + 3 * start, count, parameters);
    });
}

// (dp/dz) grad, and where there is room for them, (dp/dq).grad, (dp/dr).grad and (dp/dtemperature).grad [rows, 3].
template <class T>
void map_backward(const T* probabilities, const T* grad, T* grad_logits, T* grad_parameters, int64_t rows,
                  int64_t classes, OrderColumns orders) {
    const bool in_groups = orders.shared() && rows > 1 && classes <= SHORT;
    for_rows(rows, classes, [&](int64_t begin, int64_t end) {
        if (in_groups)
            return map_backward_groups(probabilities, grad, grad_logits, grad_parameters, begin, end, classes, orders[0]);
        List<T> support(classes);
        std::unique_ptr<T[]> direction(new T[padded(classes)]);
        for (int64_t row = begin; row < end; ++row) {
            const int64_t start = row * classes;
            const bool undefined = std::isnan(probabilities[start]);
            std::fill_n(grad_logits + start, classes, undefined ? UNDEFINED<T> : T(0));
            ParameterGradients<double> parameters{UNDEFINED<T>, UNDEFINED<T>, UNDEFINED<T>};
            if (!undefined) {
                collect(probabilities + start, classes, T(0), support);
                support.pad(T(0));
                for (int64_t j = 0; j < support.count; ++j) direction[j] = grad[start + support.place[j]];
                std::fill(direction.get() + support.count, direction.get() + padded(support.count), T(0));
                pull_back<OneRow<T>>(support.value.get(), direction.get(), padded(support.count), orders[row],
                                     grad_parameters ? &parameters : nullptr);
                for (int64_t j = 0; j < support.count; ++j) grad_logits[start + support.place[j]] = direction[j];
            }
            if (grad_parameters) write(grad_parameters + 3 * row, parameters.q, parameters.r, parameters.temperature);
        }
    });
}

// What the backward pass of the loss needs of a row.
struct State {
    double maximum, unit, scale, total;
};

// The first row whose target is none of the classes and not `ignored`, or -1.
inline int64_t first_outside(const int64_t* targets, int64_t ignored, int64_t rows, int64_t classes) {
    for (int64_t row = 0; row < rows; ++row)
        if (targets[row] != ignored && (targets[row] < 0 || targets[row] >= classes)) return row;
    return -1;
}

// The loss of one row, from its conjugate, the logit of its target, and its largest.
template <class T> T loss_of(double conjugate, T target, double maximum) {
    const double value = conjugate - (double(target) - maximum);
    return T(value < 0 ? 0 : value);  // rounding can leave -1e-17 at p = y
}

template <class T>
void class_loss_groups(const T* logits, const int64_t* targets, int64_t ignored, T* loss, State* states, T* slopes,
                       int64_t begin, int64_t end, int64_t classes, const Orders& orders) {
    GroupSolver<T> solver(orders, classes);
    std::unique_ptr<double[]> p(new double[classes * GROUP]);
    for_groups(begin, end, [&](int64_t start, int64_t count) {
        const T* z = logits + start * classes;
        const Solution<Doubles>& solved = solver.solve(z, count);
        for (int64_t lane = 0; lane < count; ++lane) {
            const int64_t row = start + lane, target = targets[row];
            states[row] = {solved.maximum[lane], 1 / orders.temperature, solved.scale[lane], solved.total[lane]};
            loss[row] = target == ignored ? T(0) : loss_of(solved.conjugate[lane], z[lane * classes + target],
                                                           solved.maximum[lane]);
        }
        if (!slopes) return;
        for (int64_t i = 0; i < classes; ++i) store(p.get() + i * GROUP, solver.probability(i));
        write(slopes + 3 * start, count, conjugate_gradients<ManyRows>(p.get(), classes * GROUP, orders));
        for (int64_t row = start; row < start + count; ++row)
            if (targets[row] == ignored) write(slopes + 3 * row, 0, 0, 0);
    });
}

// The loss [rows] of logits whose targets are classes, 0 where that is `ignored`; the states [rows]; and where there is
// room for them, the loss' derivatives by q, r and temperature [rows, 3].
template <class T>
void class_loss(const T* logits, const int64_t* targets, int64_t ignored, T* loss, State* states, T* slopes,
                int64_t rows, int64_t classes, OrderColumns orders) {
    const bool in_groups = grouped<T>(orders, rows, classes);
    for_rows(rows, classes, [&](int64_t begin, int64_t end) {
        if (in_groups)
            return class_loss_groups(logits, targets, ignored, loss, states, slopes, begin, end, classes, orders[0]);
        RowSolver<T> solver(classes);
        std::unique_ptr<T[]> p(new T[padded(classes)]);
        for (int64_t row = begin; row < end; ++row) {
            loss[row] = 0;
            if (slopes) write(slopes + 3 * row, 0, 0, 0);
            if (targets[row] == ignored) continue;
            const T* z = logits + row * classes;
            const Solution<double>& solved = solver.solve(z, orders[row]);
            states[row] = {solved.maximum, 1 / orders[row].temperature, solved.scale, solved.total};
            loss[row] = loss_of(solved.conjugate, z[targets[row]], solved.maximum);
            if (!slopes) continue;
            for (int64_t i = 0; i < padded(solver.count()); ++i) p[i] = i < solver.count() ? solver.probability(i) : T(0);
            const auto by = conjugate_gradients<OneRow<T>>(p.get(), padded(solver.count()), orders[row]);
            write(slopes + 3 * row, by.q, by.r, by.temperature);
        }
    });
}

// factor (p - y) of one row, p from its logits and state.
template <class T, int Exponent>
void class_loss_gradient(const T* z, int64_t target, T* grad, const State& state, const Shape& shape, double factor,
                         int64_t classes) {
    using V = Vector<double>;
    const T threshold = T(state.maximum - (1 + 1e-6) / state.scale / state.unit);
    const auto gradient = [&](V value) {
        const V u = (value - state.maximum) * state.unit * state.scale;
        const V weight = u > -1 ? power<Exponent>(u > -1 ? u : V{} - 1, shape.integer, shape.beta - 1) * (1 + u) : V{};
        return weight * (factor / state.total);
    };
    int64_t i = 0;
    for (; i + LANES<T> <= classes; i += LANES<T>) {
        const Vector<T> value = load<T>(z + i);
        Vector<T> out = {};
        if (any(value > threshold)) {
            T part[LANES<T>];
            for (int64_t j = 0; j < LANES<T>; j += LANES<double>) store_as<T>(part + j, gradient(load<double>(z + i + j)));
            out = load<T>(part);
        }
        store(grad + i, out);
    }
    for (; i < classes; ++i) grad[i] = T(gradient(all(double(z[i])))[0]);
    grad[target] -= T(factor);
}

// grad (p - y), with grad [rows] or, if `grad_step` is 0, one for all.
template <class T>
void class_loss_backward(const T* logits, const int64_t* targets, int64_t ignored, const State* states,
                         const T* grad, int64_t grad_step, T* grad_logits, int64_t rows, int64_t classes,
                         Column q) {
    for_rows(rows, classes, [&](int64_t begin, int64_t end) {
        for (int64_t row = begin; row < end; ++row) {
            T* out = grad_logits + row * classes;
            const double scale = grad[row * grad_step];
            if (targets[row] == ignored || scale == 0) {
                std::fill_n(out, classes, T(0));
            } else if (std::isnan(states[row].total)) {
                std::fill_n(out, classes, UNDEFINED<T>);
            } else {
                const Shape shape = shape_of<T>(Orders{q[row], 1, 1});
                with_exponent(shape.integer, [&](auto exponent) {
                    class_loss_gradient<T, exponent>(logits + row * classes, targets[row], out, states[row], shape,
                                                     scale, classes);
                });
            }
        }
    });
}

}  // namespace sharmix
