// The functions of the kernel: for each row of a matrix, on torch's threads.
#pragma once

#include <new>

#include "alpha_relu.h"
#include "solver.h"
#include "two_classes.h"

namespace sharmix {

// torch's own thread pool, from torch's stable C interface. The arguments are begin, end, grain, body and its context.
using ParallelFor = int32_t (*)(int64_t, int64_t, int64_t, void (*)(int64_t, int64_t, void*), void*);
inline ParallelFor torch_parallel_for = nullptr;

constexpr int64_t GRAIN = 16384;  // a thread has at least this many entries

template <class Body> void for_rows(int64_t rows, int64_t classes, Body body) {
    const auto call = [](int64_t begin, int64_t end, void* context) {
        (*static_cast<Body*>(context))(begin, end);
#ifdef __SSE2__
        _mm_sfence();  // make the streamed writes visible to other threads
#endif
    };
    const bool failed = torch_parallel_for(0, rows, std::max<int64_t>(1, GRAIN / std::max<int64_t>(1, classes)), call, &body);
#ifdef __cpp_exceptions
    if (failed) throw std::bad_alloc();  // no other error is possible in a body
#else
    (void)failed;  // as in WebAssembly, where a failed allocation ends the program
#endif
}

// Fills the rows of a result with one value. A result of more than 32 MiB is streamed to memory, past the caches, which
// would first read the old content. It saves a tenth to a sixth of the map's step at 512 x 32000.
template <class T> class Fill {
  public:
    Fill(int64_t rows, int64_t classes) : classes_(classes), past_caches_(rows * classes * int64_t(sizeof(T)) > 1 << 25) {}

    void operator()(T* row, T value) const {
        T* const end = row + classes_;
#ifdef __SSE2__
        constexpr int64_t LANES_OF_STREAM = 16 / sizeof(T);
        if (past_caches_) {
            alignas(16) T several[LANES_OF_STREAM];
            std::fill_n(several, LANES_OF_STREAM, value);
            for (; row != end && uintptr_t(row) % 16; ++row) *row = value;
            const __m128i bits = _mm_load_si128(reinterpret_cast<const __m128i*>(several));
            for (; end - row >= LANES_OF_STREAM; row += LANES_OF_STREAM) _mm_stream_si128(reinterpret_cast<__m128i*>(row), bits);
        }
#endif
        std::fill(row, end, value);
    }

  private:
    int64_t classes_;
    bool past_caches_;
};

template <class T> void write(T* three, double q, double r, double temperature) {
    three[0] = T(q);
    three[1] = T(r);
    three[2] = T(temperature);
}

template <class T> void write(T* three, const ParameterGradients<double>& gradients) {
    write(three, gradients.q, gradients.r, gradients.temperature);
}

// p [rows, classes] and the conjugate [rows] of logits.
template <class T>
void solve(const T* logits, T* probabilities, T* conjugate, int64_t rows, int64_t classes, OrderColumns orders) {
    const auto of_two = [&](auto map) {
        for_rows(rows, classes, [&](int64_t begin, int64_t end) {
            solve_two<decltype(map)>(logits, probabilities, begin, end, orders.temperature.value);
        });
    };
    if (!conjugate && in_closed_form(classes, orders, of_two)) return;
    const Fill<T> fill(rows, classes);
    for_rows(rows, classes, [&](int64_t begin, int64_t end) {
        Solver<T> solver(orders, classes, false);
        const auto on_solved = [&](int64_t row, const RowResult& result, const Entries<T>& p) {
            T* out = probabilities + row * classes;
            if (is_crowded(p, classes)) {
                scatter_crowded(logits + row * classes, p, out, classes);
            } else {
                fill(out, std::isnan(result.total) ? UNDEFINED<T> : T(0));
                scatter(p, out, classes);
            }
            if (conjugate) conjugate[row] = T(result.conjugate);
        };
        solver.solve(logits, begin, end, [](int64_t) { return true; }, on_solved);
    });
}

// Up to this many entries of a row, a vector holds an entry of each row of a group. It saves two fifths of the map's
// backward pass at 64 x 3.
constexpr int64_t NARROW = 16;

// The support of one row, and the gradient on the support.
template <class T> struct Support : List<T> {
    explicit Support(int64_t classes) : List<T>(classes), grad(new T[padded(classes) + 2 * PADDING]) {}

    void find(const T* probabilities, const T* grad_of_row, int64_t classes) {
        collect(probabilities, classes, T(0), *this);
        crowded = is_crowded(this->entries(), classes);
        if (crowded) gather_crowded(probabilities, this->entries(), grad_of_row, grad.get(), classes);
        else gather(grad_of_row, this->entries(), grad.get(), classes);
        this->pad(T(0));
        std::fill(grad.get() + this->count, grad.get() + padded(this->count), T(0));
    }

    Entries<T> gradient() const { return {grad.get(), this->place.get(), this->count, T(0)}; }

    std::unique_ptr<T[]> grad;
    int64_t row = 0;
    bool crowded = false;
};

// The backward pass of the map. Rows with few entries wait until they fill a group.
template <class T> class MapBackward {
  public:
    MapBackward(const T* probabilities, const T* grad, T* grad_logits, T* grad_parameters, int64_t rows, int64_t classes,
                const OrderColumns& orders)
        : probabilities_(probabilities), grad_(grad), grad_logits_(grad_logits), grad_parameters_(grad_parameters),
          classes_(classes), orders_(orders), fill_(rows, classes),
          room_(new T[2 * std::max(padded(classes), GROUP * CROWD)]), columns_(new double[4 * GROUP * NARROW]) {
        supports_.reserve(GROUP);
        for (int64_t i = 0; i < GROUP; ++i) supports_.emplace_back(classes);
    }

    void add(int64_t row) {
        Support<T>& support = supports_[waiting_];
        support.row = row;
        support.find(probabilities_ + row * classes_, grad_ + row * classes_, classes_);
        if (!orders_.shared() || support.count > CROWD) finish_separately(&support, 1, padded(classes_));
        else if (++waiting_ == GROUP) finish();
    }

    // Computes the gradients of the waiting rows.
    void finish() {
        if (!waiting_) return;
        int64_t longest = 0;
        for (int64_t i = 0; i < waiting_; ++i) longest = std::max(longest, supports_[i].count);
        if (longest <= NARROW) finish_interleaved(longest);
        else finish_separately(supports_.data(), waiting_, CROWD);
        waiting_ = 0;
    }

  private:
    // Computes each row in a strip of its own. There is room for `entries` entries of each row.
    void finish_separately(Support<T>* supports, int64_t rows, int64_t entries) {
        Strip<T> strips[GROUP] = {};
        for (int64_t i = 0; i < rows; ++i) {
            T* room = room_.get() + 2 * i * entries;
            strips[i] = {supports[i].value.get(), supports[i].grad.get(), room, room + entries, padded(supports[i].count)};
        }
        pull_back<SeparateRows<T>>(strips, rows, supports, rows);
        for (int64_t i = 0; i < rows; ++i) write_row(supports[i]);
    }

    void write_row(const Support<T>& support) const {
        const T* p = probabilities_ + support.row * classes_;
        T* out = grad_logits_ + support.row * classes_;
        if (support.crowded) return scatter_crowded(p, support.gradient(), out, classes_);
        fill_(out, std::isnan(*p) ? UNDEFINED<T> : T(0));
        scatter(support.gradient(), out, classes_);
    }

    void finish_interleaved(int64_t longest) {
        const int64_t entries = GROUP * longest;
        double *p = columns_.get(), *grad = p + entries;
        std::fill_n(p, 2 * entries, 0);
        each_entry([&](const Support<T>& support, int64_t j, int64_t column) {
            p[column] = support.value[j];
            grad[column] = support.grad[j];
        });
        const Strip<double> strip = {p, grad, grad + entries, grad + 2 * entries, entries};
        pull_back<InterleavedRows>(&strip, 1, supports_.data(), waiting_);
        each_entry([&](const Support<T>& support, int64_t j, int64_t column) { support.grad[j] = T(grad[column]); });
        for (int64_t i = 0; i < waiting_; ++i) write_row(supports_[i]);
    }

    // body(support, j, column) for each entry j of each waiting row, with its place in the columns.
    template <class Body> void each_entry(Body body) {
        for (int64_t i = 0; i < waiting_; ++i)
            for (int64_t j = 0; j < supports_[i].count; ++j) body(supports_[i], j, j * GROUP + i);
    }

    template <class Layout>
    void pull_back(const Strip<typename Layout::Real>* strips, int64_t count, const Support<T>* supports, int64_t rows) {
        PullBack<Layout> pull_back(strips, count, orders_[supports->row]);
        if (grad_parameters_) {
            const ParameterGradients<Doubles> gradients = pull_back.parameters();
            for (int64_t i = 0; i < rows; ++i) {
                const auto of = [&](const Doubles& values) { return supports[i].count ? values[i] : UNDEFINED<double>; };
                write(grad_parameters_ + 3 * supports[i].row, of(gradients.q), of(gradients.r), of(gradients.temperature));
            }
        }
        pull_back.logits();
    }

    const T *probabilities_, *grad_;
    T *grad_logits_, *grad_parameters_;
    int64_t classes_, waiting_ = 0;
    const OrderColumns& orders_;
    const Fill<T> fill_;
    std::vector<Support<T>> supports_;  // the first ones wait
    std::unique_ptr<T[]> room_;  // clearing a vector takes a fifth of the map's backward pass at 64 x 3
    std::unique_ptr<double[]> columns_;
};

// (dp/dz) grad; and (dp/dq).grad, (dp/dr).grad and (dp/dtemperature).grad [rows, 3], unless `grad_parameters` is null.
template <class T>
void map_backward(const T* probabilities, const T* grad, T* grad_logits, T* grad_parameters, int64_t rows,
                  int64_t classes, OrderColumns orders) {
    const auto of_two = [&](auto map) {
        for_rows(rows, classes, [&](int64_t begin, int64_t end) {
            pull_back_two<decltype(map)>(probabilities, grad, grad_logits, begin, end, orders.temperature.value);
        });
    };
    if (!grad_parameters && in_closed_form(classes, orders, of_two)) return;
    for_rows(rows, classes, [&](int64_t begin, int64_t end) {
        MapBackward<T> backward(probabilities, grad, grad_logits, grad_parameters, rows, classes, orders);
        for (int64_t row = begin; row < end; ++row) backward.add(row);
        backward.finish();
    });
}

// The loss of one row, from its conjugate, the logit of its target and its largest logit.
template <class T> T loss_of(double conjugate, T target, double maximum) {
    const double value = conjugate - (double(target) - maximum);
    return T(value < 0 ? 0 : value);  // rounding can leave -1e-17 at p = y
}

// The arguments of `class_loss`, and the memory for its results.
template <class T> struct ClassLossTask {
    const T* logits;
    Targets targets;
    T* loss;
    State* states;  // or null
    T* slopes;      // or null
    T* gradient;    // (p - y) scale, or null
    double scale;
    int64_t classes;
    OrderColumns orders;

    // Writes the results of a row that is left out.
    void write_ignored_row(int64_t row) const {
        loss[row] = 0;
        if (slopes) write(slopes + 3 * row, 0, 0, 0);
        if (gradient) std::fill_n(gradient + row * classes, classes, T(0));
    }

    // Writes the results of a row that counts.
    void write_row(int64_t row, const RowResult& result, const Entries<T>& p) const {
        write_loss(row, result.conjugate, {result.maximum, 1 / orders[row].temperature, result.scale, result.total});
        if (slopes) write(slopes + 3 * row, result.slopes);
        if (!gradient) return;
        T* out = gradient + row * classes;
        std::fill_n(out, classes, std::isnan(result.total) ? UNDEFINED<T> : T(0));
        for (int64_t j = 0; j < p.count; ++j) out[p.place[j]] = T(double(p.value[j]) * scale);
        out[targets.classes[row]] -= T(scale);
    }

    void write_loss(int64_t row, double conjugate, const State& state) const {
        if (states) states[row] = state;
        loss[row] = loss_of(conjugate, logits[row * classes + targets.classes[row]], state.maximum);
    }
};

template <class T> void class_loss_rows(const ClassLossTask<T>& task, int64_t begin, int64_t end) {
    Solver<T> solver(task.orders, task.classes, task.slopes);
    const auto wanted = [&](int64_t row) {
        const bool counts = task.targets.counts(row);
        if (!counts) task.write_ignored_row(row);
        return counts;
    };
    solver.solve(task.logits, begin, end, wanted, [&](const auto&... found) { task.write_row(found...); });
}

// The loss [rows], which is 0 where a row is left out; and if wanted its states, its derivatives by q, r and temperature
// [rows, 3], and its gradient.
template <class T> void class_loss(const ClassLossTask<T>& task, int64_t rows) {
    for_rows(rows, task.classes, [&](int64_t begin, int64_t end) { class_loss_rows(task, begin, end); });
}

// The backward pass of the loss, for one row after another.
template <class T> class ClassLossGradient {
  public:
    explicit ClassLossGradient(int64_t classes) : classes_(classes), active_(classes / LANES<T>) {}

    // factor (p - y), with p from the logits z and their state. For float32 logits it is computed in float32, from the
    // distances to the largest logit, whose w is then exactly 1. The error of each entry of p is at most beta roundings of
    // the largest entry; for a tiny entry this is more than its own rounding. It saves a quarter of the pass at 64 x 1000.
    void operator()(const T* z, int64_t target, T* grad, const State& state, const Orders& orders, double factor) {
        const Shape shape = shape_of<T>(orders);
        const double level = factor / state.total, slope = state.unit * state.scale;
        find_active(z, just_below(T(state.maximum - (1 + 1e-6) / slope)), grad);
        with_exponent(shape.integer, [&](auto exponent) {
            constexpr bool in_float = sizeof(T) == sizeof(float) && exponent != 0;  // with 0, beta = 1: not smooth
            if constexpr (in_float) {
                if (SMOOTH <= shape.beta && shape.beta <= FLAT && slope > 1e-30 && slope < 1e30) {
                    const LineOfU<Vector<T>> line{all(T(state.maximum)), all(T(slope)), all(T(1))};
                    return write<T, exponent>(shape, line, level, z, grad);
                }
            }
            const LineOfU<Doubles> line{all(state.maximum), all(state.unit), all(state.scale)};
            constexpr int rest = in_float && exponent > 0 ? ANY_INTEGER : int(exponent);  // rare: not worth a loop of its own
            write<double, rest>(shape, line, level, z, grad);
        });
        grad[target] -= T(factor);
    }

  private:
    // Lists the whole vectors that have a gradient, and writes 0 to all of them. It saves a sixth of the loss' backward pass at
    // 64 x 1000, and half for q = 1.3.
    void find_active(const T* z, T threshold, T* grad) {
        count_ = 0;
        for (int64_t i = 0; i + LANES<T> <= classes_; i += LANES<T>) {
            store(grad + i, Vector<T>{});  // costs nothing beside a load
            if (any(load<T>(z + i) > threshold)) active_[count_++] = int32_t(i);
        }
    }

    template <class Real, int Exponent>
    void write(const Shape& shape, const LineOfU<Vector<Real>>& line, double level, const T* z, T* grad) const {
        write_vectors<Real, Exponent>(shape, line, level, z, grad, active_.data(), count_);
        const int64_t whole = classes_ / LANES<T> * LANES<T>;
        if (whole == classes_) return;
        T last[LANES<T>], gradient[LANES<T>];
        const int32_t first = 0;
        std::fill_n(std::copy(z + whole, z + classes_, last), LANES<T> - (classes_ - whole), -std::numeric_limits<T>::infinity());
        write_vectors<Real, Exponent>(shape, line, level, last, gradient, &first, 1);
        std::copy_n(gradient, classes_ - whole, grad + whole);
    }

    // Writes the gradient of `count` vectors, which begin at `places`.
    template <class Real, int Exponent>
    static void write_vectors(const Shape& shape, const LineOfU<Vector<Real>>& line, double level, const T* z, T* grad,
                              const int32_t* places, int64_t count) {
        using V = Vector<Real>;
        const auto place = [&](int64_t j) { return places[j / LANES<T>] + j % LANES<T>; };
        for_powers<V, Exponent>(
            count * LANES<T>, LANES<Real>, shape, line, [&](int64_t j) { return load<Real>(z + place(j)); },
            [&](int64_t j, V, V w, V power) { store_as<T>(grad + place(j), power * w * Real(level)); });
    }

    int64_t classes_, count_ = 0;
    std::vector<int32_t> active_;
};

// grad (p - y) for each row.
template <class T>
void class_loss_backward(const T* logits, const Targets& targets, const State* states, const RowGradient<T>& grad,
                         T* grad_logits, int64_t rows, int64_t classes, OrderColumns orders) {
    for_rows(rows, classes, [&](int64_t begin, int64_t end) {
        ClassLossGradient<T> gradient(classes);
        for (int64_t row = begin; row < end; ++row) {
            T* out = grad_logits + row * classes;
            const T* z = logits + row * classes;
            const double scale = targets.counts(row) ? grad[row] : 0;
            if (targets.counts(row) && std::isnan(states[row].total)) std::fill_n(out, classes, UNDEFINED<T>);
            else if (scale == 0) std::fill_n(out, classes, T(0));
            else gradient(z, targets.classes[row], out, states[row], orders[row], scale);
        }
    });
}

// The loss [rows] of alpha-ReLU, which is 0 where a row is left out.
template <class T>
void alpha_relu_loss(const T* logits, const Targets& targets, T* loss, int64_t rows, int64_t classes,
                     const AlphaReLU<T>& alpha_relu) {
    for_rows(rows, classes, [&](int64_t begin, int64_t end) {
        for (int64_t row = begin; row < end; ++row) {
            const T* z = logits + row * classes;
            const bool counts = targets.counts(row);
            loss[row] = counts ? loss_of(alpha_relu.conjugate(z, classes), z[targets.classes[row]], 0) : T(0);
        }
    });
}

// grad (p - y) for each row, with p of alpha-ReLU.
template <class T>
void alpha_relu_loss_backward(const T* logits, const Targets& targets, const RowGradient<T>& grad, T* grad_logits,
                              int64_t rows, int64_t classes, const AlphaReLU<T>& alpha_relu) {
    for_rows(rows, classes, [&](int64_t begin, int64_t end) {
        for (int64_t row = begin; row < end; ++row) {
            T* out = grad_logits + row * classes;
            const double scale = targets.counts(row) ? grad[row] : 0;
            if (scale == 0) std::fill_n(out, classes, T(0));
            else alpha_relu.gradient(logits + row * classes, targets.classes[row], out, scale, classes);
        }
    });
}

}  // namespace sharmix
