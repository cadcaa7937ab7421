// alpha-ReLU against one class a row, p_i = (slope z_i - tau)_+^beta with slope = alpha - 1 and beta = 1/slope, an integer.
#pragma once

#include "rows.h"

namespace sharmix {

// 1/(alpha - 1) where that is an integer, else not positive.
template <class T> int beta_of(double alpha) { return shape_of<T>(Orders{alpha, 1, 1}).integer + 1; }

// body(start, count, logits) for as many logits of a row at a time as doubles fit a vector; what is missing is -infinity.
template <class T, class Body> INLINE void for_vectors(const T* row, int64_t classes, Body body) {
    constexpr int64_t lanes = LANES<double>;
    int64_t start = 0;
    for (; start + lanes <= classes; start += lanes) body(start, lanes, load<double>(row + start));
    if (start == classes) return;
    T last[lanes];
    std::fill(std::copy(row + start, row + classes, last), std::end(last), -std::numeric_limits<T>::infinity());
    body(start, classes - start, load<double>(last));
}

// (slope z - tau)_+, NaN where z is.
INLINE Doubles clipped(Doubles z, const Threshold& threshold) {
    const Doubles base = threshold.slope() * z - threshold.tau;
    return base < 0 ? Doubles{} : base;
}

// The loss [rows], 0 where a row is left out.
template <class T>
void alpha_relu_loss(const T* logits, const Targets& targets, T* loss, int64_t rows, int64_t classes,
                     const Threshold& threshold) {
    const double alpha = threshold.alpha, at_target = (threshold.tau + 1 / alpha) / threshold.slope();
    const int beta = beta_of<T>(alpha);
    for_rows(rows, classes, [&](int64_t begin, int64_t end) {
        for (int64_t row = begin; row < end; ++row) {
            loss[row] = 0;
            if (!targets.counts(row)) continue;
            const T* z = logits + row * classes;
            Doubles powers = {};
            for_vectors(z, classes, [&](int64_t, int64_t, Doubles part) {
                powers += power<ANY_INTEGER>(clipped(part, threshold), beta + 1);
            });
            loss[row] = loss_of(sum<double>(powers) / alpha + at_target, z[targets.classes[row]], 0.0);
        }
    });
}

// grad (p - y) for each row.
template <class T>
void alpha_relu_loss_backward(const T* logits, const Targets& targets, const RowGradient<T>& grad, T* grad_logits,
                              int64_t rows, int64_t classes, const Threshold& threshold) {
    const int beta = beta_of<T>(threshold.alpha);
    for_rows(rows, classes, [&](int64_t begin, int64_t end) {
        for (int64_t row = begin; row < end; ++row) {
            T* out = grad_logits + row * classes;
            const double factor = targets.counts(row) ? grad[row] : 0;
            if (factor == 0) {
                std::fill_n(out, classes, T(0));
                continue;
            }
            for_vectors(logits + row * classes, classes, [&](int64_t start, int64_t count, Doubles part) {
                const Doubles weighted = factor * power<ANY_INTEGER>(clipped(part, threshold), beta);
                if (count == LANES<double>) return store_as<T>(out + start, weighted);
                T last[LANES<double>];
                store_as<T>(last, weighted);
                std::copy_n(last, count, out + start);
            });
            out[targets.classes[row]] -= T(factor);
        }
    });
}

}  // namespace sharmix
