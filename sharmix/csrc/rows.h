// What is computed of each row of a matrix, row after row, on torch's threads.
#pragma once

#include <new>

#include "alpha_relu.h"
#include "gradients.h"

namespace sharmix {

// torch's own thread pool, by the C interface that torch keeps stable: (begin, end, grain, body, its context).
using ParallelFor = int32_t (*)(int64_t, int64_t, int64_t, void (*)(int64_t, int64_t, void*), void*);
inline ParallelFor torch_parallel_for = nullptr;

constexpr int64_t GRAIN = 16384;  // entries that are worth a thread

template <class Body> void for_rows(int64_t rows, int64_t classes, Body body) {
    const auto call = [](int64_t begin, int64_t end, void* context) {
        (*static_cast<Body*>(context))(begin, end);
#ifdef __SSE2__
        _mm_sfence();  // other threads are to see what went past the caches
#endif
    };
    const bool failed = torch_parallel_for(0, rows, std::max<int64_t>(1, GRAIN / std::max<int64_t>(1, classes)), call, &body);
    if (failed) throw std::bad_alloc();  // nothing else can fail in a body
}

template <class T> constexpr T UNDEFINED = std::numeric_limits<T>::quiet_NaN();

constexpr int64_t CACHED = 1 << 25;  // bytes of a result; a larger one would only push out of the caches what is there

// Fills rows of a result with one value. Past the caches, memory need not be read before it is written.
template <class T> class Fill {
  public:
    Fill(int64_t rows, int64_t classes) : classes_(classes), past_caches_(rows * classes * int64_t(sizeof(T)) > CACHED) {}

    bool goes_past_caches() const { return past_caches_; }

    void operator()(T* row, T value) const {
        T* const end = row + classes_;
#ifdef __SSE2__
        if (past_caches_) {
            T several[16 / sizeof(T)];
            std::fill(several, std::end(several), value);
            __m128i bits;
            std::memcpy(&bits, several, sizeof bits);
            for (; row != end && uintptr_t(row) % sizeof bits; ++row) *row = value;
            for (; end - row >= std::end(several) - several; row += std::end(several) - several)
                _mm_stream_si128(reinterpret_cast<__m128i*>(row), bits);
        }
#endif
        std::fill(row, end, value);
    }

  private:
    int64_t classes_;
    bool past_caches_;
};

// Whether rows are solved in groups: short ones, of the same orders, in the concave region.
inline bool grouped(const OrderColumns& orders, int64_t rows, int64_t classes) {
    return orders.shared() && rows > 1 && classes <= SHORT && GroupSolver<float>(orders[0], 1).concave();
}

// body(start, count) for the groups from one row to another.
template <class Body> void for_groups(int64_t begin, int64_t end, Body body) {
    for (int64_t start = begin; start < end; start += GROUP) body(start, std::min(GROUP, end - start));
}

// together(start, count) for group after group, until one says that its rows are too crowded; from there on
// alone(start, end).
template <class Together, class Alone> void for_groups(int64_t begin, int64_t end, Together together, Alone alone) {
    for (int64_t start = begin; start < end; start += GROUP)
        if (!together(start, std::min(GROUP, end - start))) return alone(start, end);
}

template <class T> void write(T* three, double q, double r, double temperature) {
    three[0] = T(q);
    three[1] = T(r);
    three[2] = T(temperature);
}

template <class T> void write(T* three, const ParameterGradients<double>& gradients) {
    write(three, gradients.q, gradients.r, gradients.temperature);
}

template <class T> void write(T* three, int64_t count, const ParameterGradients<Doubles>& gradients) {
    for (int64_t lane = 0; lane < count; ++lane)
        write(three + 3 * lane, gradients.q[lane], gradients.r[lane], gradients.temperature[lane]);
}

// p [rows, classes] and the conjugate [rows] of logits, from one row to another.
template <class T>
void solve_rows(const T* logits, T* probabilities, T* conjugate, int64_t begin, int64_t end, int64_t classes,
                const OrderColumns& orders, const Fill<T>& fill) {
    RowSolver<T> solver(classes);
    for (int64_t row = begin; row < end; ++row) {
        const Solution<double>& solved = solver.solve(logits + row * classes, orders[row]);
        T* p = probabilities + row * classes;
        if (solver.candidates().count < classes)
            fill(p, std::isnan(solved.total) ? UNDEFINED<T> : T(0));
        scatter(solver.probabilities(), solver.candidates(), p, classes);
        if (conjugate) conjugate[row] = T(solved.conjugate);
    }
}

template <class T>
void solve_groups(const T* logits, T* probabilities, T* conjugate, int64_t begin, int64_t end, int64_t classes,
                  const OrderColumns& orders, const Fill<T>& fill) {
    GroupSolver<T> solver(orders[begin], classes);
    const auto together = [&](int64_t start, int64_t count) {
        if (!solver.solve(logits + start * classes, count)) return false;
        for (int64_t lane = 0; lane < count; ++lane) {
            T* p = probabilities + (start + lane) * classes;
            const List<T>& candidates = solver.candidates(lane);
            fill(p, std::isnan(solver.solution().maximum[lane]) ? UNDEFINED<T> : T(0));
            for (int64_t j = 0; j < candidates.count; ++j)
                p[candidates.place[j]] = T(solver.probabilities()[j * GROUP + lane]);
            if (conjugate) conjugate[start + lane] = T(solver.solution().conjugate[lane]);
        }
        return true;
    };
    for_groups(begin, end, together, [&](int64_t start, int64_t stop) {
        solve_rows(logits, probabilities, conjugate, start, stop, classes, orders, fill);
    });
}

// p [rows, classes] and the conjugate [rows] of logits.
template <class T>
void solve(const T* logits, T* probabilities, T* conjugate, int64_t rows, int64_t classes, OrderColumns orders) {
    const bool in_groups = grouped(orders, rows, classes);
    const Fill<T> fill(rows, classes);
    for_rows(rows, classes, [&](int64_t begin, int64_t end) {
        (in_groups ? solve_groups<T> : solve_rows<T>)(logits, probabilities, conjugate, begin, end, classes, orders, fill);
    });
}

// The gradients of one row, from its support and the gradient of that.
template <class T>
void map_backward_row(List<T>& support, const T* grad, T* grad_logits, T* grad_parameters, int64_t classes,
                      const Orders& orders) {
    support.pad(T(0));
    std::unique_ptr<T[]> direction(new T[padded(support.count)]());
    gather(grad, support, direction.get(), classes);
    PullBack<OneRow<T>> pull_back(support.value.get(), direction.get(), padded(support.count), orders);
    if (grad_parameters) write(grad_parameters, pull_back.parameters());
    pull_back.logits();
    scatter(direction.get(), support, grad_logits, classes);
}

// The same for a group of rows, in columns.
template <class T>
void map_backward_group(const Group<T>& support, const T* grad, T* grad_logits, T* grad_parameters, int64_t count,
                        int64_t classes, const Orders& orders, std::vector<double>& p, std::vector<double>& direction) {
    support.transpose(0, p);
    direction.assign(p.size(), 0);
    for (int64_t lane = 0; lane < count; ++lane)
        for (int64_t j = 0; j < support.lists[lane].count; ++j)
            direction[j * GROUP + lane] = grad[lane * classes + support.lists[lane].place[j]];
    PullBack<ManyRows> pull_back(p.data(), direction.data(), int64_t(p.size()), orders);
    if (grad_parameters) write(grad_parameters, count, pull_back.parameters());
    pull_back.logits();
    for (int64_t lane = 0; lane < count; ++lane)
        for (int64_t j = 0; j < support.lists[lane].count; ++j)
            grad_logits[lane * classes + support.lists[lane].place[j]] = T(direction[j * GROUP + lane]);
}

// (dp/dz) grad, and where there is room for them, (dp/dq).grad, (dp/dr).grad and (dp/dtemperature).grad [rows, 3].
template <class T>
void map_backward(const T* probabilities, const T* grad, T* grad_logits, T* grad_parameters, int64_t rows,
                  int64_t classes, OrderColumns orders) {
    const Fill<T> fill(rows, classes);
    for_rows(rows, classes, [&](int64_t begin, int64_t end) {
        Group<T> support(classes);
        std::vector<double> p, direction;
        for_groups(begin, end, [&](int64_t start, int64_t count) {
            bool defined = true;
            for (int64_t lane = 0; lane < GROUP; ++lane) {
                support.lists[lane].count = 0;
                if (lane >= count) continue;
                const int64_t row = start + lane, first = row * classes;
                const bool undefined = std::isnan(probabilities[first]);
                defined &= !undefined;
                fill(grad_logits + first, undefined ? UNDEFINED<T> : T(0));
                if (undefined && grad_parameters) write(grad_parameters + 3 * row, UNDEFINED<T>, UNDEFINED<T>, UNDEFINED<T>);
                collect(probabilities + first, classes, T(0), support.lists[lane]);
            }
            T* parameters = grad_parameters ? grad_parameters + 3 * start : nullptr;
            const int64_t first = start * classes;
            if (orders.shared() && defined && support.longest() <= CROWD)
                return map_backward_group(support, grad + first, grad_logits + first, parameters, count, classes,
                                          orders[start], p, direction);
            for (int64_t lane = 0; lane < count; ++lane)
                if (support.lists[lane].count)
                    map_backward_row(support.lists[lane], grad + first + lane * classes, grad_logits + first + lane * classes,
                                     parameters ? parameters + 3 * lane : nullptr, classes, orders[start + lane]);
        });
    });
}

// The loss of one row, from its conjugate, the logit of its target, and its largest.
template <class T> T loss_of(double conjugate, T target, double maximum) {
    const double value = conjugate - (double(target) - maximum);
    return T(value < 0 ? 0 : value);  // rounding can leave -1e-17 at p = y
}

// What is asked of `class_loss`, and where its answers go.
template <class T> struct ClassLoss {
    const T* logits;
    Targets targets;
    T* loss;
    State* states;  // or null
    T* slopes;    // or null
    T* gradient;  // (p - y) scale, or null
    double scale;
    int64_t classes;

    void none(int64_t row) const {
        loss[row] = 0;
        if (slopes) write(slopes + 3 * row, 0, 0, 0);
        if (gradient) std::fill_n(gradient + row * classes, classes, T(0));
    }

    // The gradient of a row that is not left out, from p(j) of its candidates.
    template <class Probability> void put_gradient(int64_t row, bool defined, const List<T>& candidates, Probability p) const {
        T* out = gradient + row * classes;
        std::fill_n(out, classes, defined ? T(0) : UNDEFINED<T>);
        for (int64_t j = 0; j < candidates.count; ++j) out[candidates.place[j]] = T(p(j) * scale);
        out[targets.classes[row]] -= T(scale);
    }

    void put(int64_t row, double conjugate, const State& state) const {
        if (states) states[row] = state;
        loss[row] = loss_of(conjugate, logits[row * classes + targets.classes[row]], state.maximum);
    }
};

template <class T>
void class_loss_rows(const ClassLoss<T>& asked, int64_t begin, int64_t end, const OrderColumns& orders) {
    RowSolver<T> solver(asked.classes);
    for (int64_t row = begin; row < end; ++row) {
        asked.none(row);
        if (!asked.targets.counts(row)) continue;
        const Solution<double>& solved = solver.solve(asked.logits + row * asked.classes, orders[row]);
        asked.put(row, solved.conjugate, {solved.maximum, 1 / orders[row].temperature, solved.scale, solved.total});
        if (!asked.slopes && !asked.gradient) continue;
        const T* p = solver.probabilities();
        const List<T>& candidates = solver.candidates();
        if (asked.gradient) asked.put_gradient(row, !std::isnan(solved.total), candidates, [&](int64_t j) { return double(p[j]); });
        if (asked.slopes)
            write(asked.slopes + 3 * row, conjugate_gradients<OneRow<T>>(p, padded(candidates.count), solved.renyi, orders[row]));
    }
}

template <class T>
void class_loss_groups(const ClassLoss<T>& asked, int64_t begin, int64_t end, const OrderColumns& orders) {
    const Orders shared = orders[begin];
    GroupSolver<T> solver(shared, asked.classes);
    const auto together = [&](int64_t start, int64_t count) {
        if (!solver.solve(asked.logits + start * asked.classes, count)) return false;
        const Solution<Doubles>& solved = solver.solution();
        const std::vector<double>& p = solver.probabilities();
        if (asked.slopes) {
            const auto by = conjugate_gradients<ManyRows>(p.data(), int64_t(p.size()), solved.renyi, shared);
            write(asked.slopes + 3 * start, count, by);
        }
        for (int64_t lane = 0; lane < count; ++lane) {
            const State state = {solved.maximum[lane], 1 / shared.temperature, solved.scale[lane], solved.total[lane]};
            const int64_t row = start + lane;
            if (!asked.targets.counts(row)) {
                asked.none(row);
                continue;
            }
            asked.put(row, solved.conjugate[lane], state);
            if (asked.gradient)
                asked.put_gradient(row, !std::isnan(solved.maximum[lane]), solver.candidates(lane),
                                   [&](int64_t j) { return p[j * GROUP + lane]; });
        }
        return true;
    };
    for_groups(begin, end, together, [&](int64_t start, int64_t stop) { class_loss_rows(asked, start, stop, orders); });
}

template <class T>
void alpha_relu_loss_rows(const ClassLoss<T>& asked, int64_t begin, int64_t end, const OrderColumns& orders) {
    const AlphaReLU<T> alpha_relu(orders[0]);
    for (int64_t row = begin; row < end; ++row) {
        asked.none(row);
        if (!asked.targets.counts(row)) continue;
        asked.put(row, alpha_relu.conjugate(asked.logits + row * asked.classes, asked.classes), State{});
    }
}

// The loss [rows], 0 where a row is left out, its states, and where there is room for them, its derivatives by q, r and
// temperature [rows, 3]; of alpha-ReLU the loss alone.
template <class T> void class_loss(const ClassLoss<T>& asked, int64_t rows, OrderColumns orders) {
    auto part = grouped(orders, rows, asked.classes) ? class_loss_groups<T> : class_loss_rows<T>;
    if (orders.of_alpha_relu()) part = alpha_relu_loss_rows<T>;
    for_rows(rows, asked.classes, [&](int64_t begin, int64_t end) { part(asked, begin, end, orders); });
}

// factor (p - y) of one row, p from its logits and state; `active` is room for the places of vectors that are not 0.
template <class T, int Exponent>
void class_loss_gradient(const T* z, int64_t target, T* grad, const State& state, const Shape& shape, double factor,
                         int64_t classes, const Fill<T>& fill, int32_t* active) {
    const double maximum = state.maximum, unit = state.unit, scale = state.scale, level = factor / state.total;
    const auto write = [&](const T* from, T* to, const int32_t* places, int64_t count) {
        const auto place = [&](int64_t j) { return places[j / LANES<T>] + j % LANES<T>; };
        for_powers<Doubles, Exponent>(
            count * LANES<T>, LANES<double>, shape,
            [&](int64_t j) { return (load<double>(from + place(j)) - maximum) * unit * scale; },
            [&](int64_t j, Doubles u, Doubles own) { store_as<T>(to + place(j), own * (1 + u) * level); });
    };
    const T threshold = just_below(T(maximum - (1 + 1e-6) / scale / unit));
    int64_t count = 0, i = 0;
    if (fill.goes_past_caches()) fill(grad, T(0));
    for (; i + LANES<T> <= classes; i += LANES<T>) {
        if (!fill.goes_past_caches()) store(grad + i, Vector<T>{});  // beside a load it costs nothing; in a pass of its own it would
        if (any(load<T>(z + i) > threshold)) active[count++] = int32_t(i);
    }
    write(z, grad, active, count);
    if (i < classes) {
        T last[LANES<T>], gradient[LANES<T>];
        const int32_t first = 0;
        std::fill_n(std::copy(z + i, z + classes, last), LANES<T> - (classes - i), -std::numeric_limits<T>::infinity());
        write(last, gradient, &first, 1);
        std::copy_n(gradient, classes - i, grad + i);
    }
    grad[target] -= T(factor);
}

// grad (p - y) for each row.
template <class T>
void class_loss_backward(const T* logits, const Targets& targets, const State* states, const RowGradient<T>& grad,
                         T* grad_logits, int64_t rows, int64_t classes, OrderColumns orders) {
    const Fill<T> fill(rows, classes);
    for_rows(rows, classes, [&](int64_t begin, int64_t end) {
        std::vector<int32_t> active(classes / LANES<T> + 1);
        for (int64_t row = begin; row < end; ++row) {
            T* out = grad_logits + row * classes;
            const T* z = logits + row * classes;
            const double scale = targets.counts(row) ? grad[row] : 0;
            if (scale == 0) {
                fill(out, T(0));
            } else if (orders.of_alpha_relu()) {
                AlphaReLU<T>(orders[row]).gradient(z, targets.classes[row], out, scale, classes);
            } else if (std::isnan(states[row].total)) {
                fill(out, UNDEFINED<T>);
            } else {
                const Shape shape = shape_of<T>(orders[row]);
                with_exponent(shape.integer, [&](auto exponent) {
                    class_loss_gradient<T, exponent>(z, targets.classes[row], out, states[row], shape, scale, classes, fill,
                                                     active.data());
                });
            }
        }
    });
}

}  // namespace sharmix
