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

template <class T> void write(T* three, const ParameterGradients& gradients) {
    three[0] = T(gradients.q);
    three[1] = T(gradients.r);
    three[2] = T(gradients.temperature);
}

// p [rows, classes] and the conjugate [rows] of logits.
template <class T>
void solve(const T* logits, T* probabilities, T* conjugate, int64_t rows, int64_t classes, OrderColumns orders) {
    for_rows(rows, classes, [&](int64_t begin, int64_t end) {
        RowSolver<T> solver(classes);
        for (int64_t row = begin; row < end; ++row) {
            const Distribution solved = solver.solve(logits + row * classes, orders[row]);
            T* p = probabilities + row * classes;
            std::fill_n(p, classes, std::isnan(solved.total) ? UNDEFINED<T> : T(0));
            for (int64_t i = 0; i < solver.count(); ++i) p[solver.place(i)] = solver.probability(i);
            conjugate[row] = T(solver.conjugate());
        }
    });
}

// (dp/dz) grad, and where there is room for them, (dp/dq).grad, (dp/dr).grad and (dp/dtemperature).grad [rows, 3].
template <class T>
void map_backward(const T* probabilities, const T* grad, T* grad_logits, T* grad_parameters, int64_t rows,
                  int64_t classes, OrderColumns orders) {
    for_rows(rows, classes, [&](int64_t begin, int64_t end) {
        List<T> support(classes);
        std::unique_ptr<T[]> direction(new T[padded(classes)]);
        for (int64_t row = begin; row < end; ++row) {
            const int64_t start = row * classes;
            const bool undefined = std::isnan(probabilities[start]);
            std::fill_n(grad_logits + start, classes, undefined ? UNDEFINED<T> : T(0));
            ParameterGradients parameters{UNDEFINED<T>, UNDEFINED<T>, UNDEFINED<T>};
            if (!undefined) {
                collect(probabilities + start, classes, T(0), support);
                support.pad(T(0));
                for (int64_t j = 0; j < support.count; ++j) direction[j] = grad[start + support.place[j]];
                std::fill(direction.get() + support.count, direction.get() + padded(support.count), T(0));
                pull_back(support.value.get(), direction.get(), padded(support.count), orders[row],
                          grad_parameters ? &parameters : nullptr);
                for (int64_t j = 0; j < support.count; ++j) grad_logits[start + support.place[j]] = direction[j];
            }
            if (grad_parameters) write(grad_parameters + 3 * row, parameters);
        }
    });
}

// The first row whose target is none of the classes and not `ignored`, or -1.
inline int64_t first_outside(const int64_t* targets, int64_t ignored, int64_t rows, int64_t classes) {
    for (int64_t row = 0; row < rows; ++row)
        if (targets[row] != ignored && (targets[row] < 0 || targets[row] >= classes)) return row;
    return -1;
}

// The loss [rows] of logits whose targets are classes, 0 where that is `ignored`. `states` [rows, 3] gets what the
// backward pass needs of each row, and where there is room for them, `slopes` [rows, 3] the derivatives by q, r and T.
template <class T>
void class_loss(const T* logits, const int64_t* targets, int64_t ignored, T* loss, Distribution* states, T* slopes,
                int64_t rows, int64_t classes, OrderColumns orders) {
    for_rows(rows, classes, [&](int64_t begin, int64_t end) {
        RowSolver<T> solver(classes);
        std::unique_ptr<T[]> p(new T[padded(classes)]);
        for (int64_t row = begin; row < end; ++row) {
            loss[row] = 0;
            if (slopes) std::fill_n(slopes + 3 * row, 3, T(0));
            if (targets[row] == ignored) continue;
            const T* z = logits + row * classes;
            states[row] = solver.solve(z, orders[row]);
            const double value = solver.conjugate() - (double(z[targets[row]]) - states[row].maximum);
            loss[row] = T(value < 0 ? 0 : value);  // rounding can leave -1e-17 at p = y
            if (!slopes) continue;
            for (int64_t i = 0; i < padded(solver.count()); ++i) p[i] = i < solver.count() ? solver.probability(i) : T(0);
            write(slopes + 3 * row, solver.count() ? conjugate_gradients(p.get(), padded(solver.count()), orders[row])
                                                   : ParameterGradients{UNDEFINED<T>, UNDEFINED<T>, UNDEFINED<T>});
        }
    });
}

// factor (p - y) of one row, p from its logits and state.
template <class T, int Exponent>
void class_loss_gradient(const T* z, int64_t target, T* grad, const Distribution& state, const Shape<T>& shape, double factor,
                         int64_t classes) {
    using V = Vector<double>;
    const T threshold = T(state.maximum - (1 + 1e-6) / state.scale / state.inverse_temperature);
    const auto gradient = [&](V value) {
        const V u = (value - state.maximum) * state.inverse_temperature * state.scale;
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
void class_loss_backward(const T* logits, const int64_t* targets, int64_t ignored, const Distribution* states,
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
                const Shape<T> shape(Orders{q[row], 1, 1}.delta());
                with_exponent(shape.integer, [&](auto exponent) {
                    class_loss_gradient<T, exponent>(logits + row * classes, targets[row], out, states[row], shape,
                                                     scale, classes);
                });
            }
        }
    });
}

}  // namespace sharmix
