// alpha-ReLU of a row, p_i = (slope z_i - tau)_+^beta with slope = alpha - 1 and beta = 1/slope, an integer.
#pragma once

#include <iterator>

#include "support.h"
#include "equation.h"

namespace sharmix {

// beta = 1/(alpha - 1) if it is an integer; else a number that is not positive.
template <class T> int beta_of(double alpha) { return shape_of<T>(Orders{alpha, 1, 1}).integer + 1; }

// body(start, count, logits) for one vector of logits after another. Lanes past the end of the row hold -infinity.
template <class T, class Body> INLINE void for_vectors(const T* row, int64_t classes, Body body) {
    constexpr int64_t lanes = LANES<double>;
    int64_t start = 0;
    for (; start + lanes <= classes; start += lanes) body(start, lanes, load<double>(row + start));
    if (start == classes) return;
    T last[lanes];
    std::fill(std::copy(row + start, row + classes, last), std::end(last), -std::numeric_limits<T>::infinity());
    body(start, classes - start, load<double>(last));
}

template <class T> struct AlphaReLU {
    AlphaReLU(double alpha, double tau) : alpha(alpha), tau(tau), beta(beta_of<T>(alpha)) {}

    // The conjugate of a row of logits, plus the entropy of a class.
    double conjugate(const T* z, int64_t classes) const {
        Doubles powers = {};
        for_vectors(z, classes, [&](int64_t, int64_t, Doubles part) {
            powers += power<ANY_INTEGER>(clipped(part), beta + 1);
        });
        return sum<double>(powers) / alpha + (tau + 1 / alpha) / (alpha - 1);
    }

    // factor (p - y)
    void gradient(const T* z, int64_t target, T* out, double factor, int64_t classes) const {
        for_vectors(z, classes, [&](int64_t start, int64_t count, Doubles part) {
            const Doubles weighted = factor * power<ANY_INTEGER>(clipped(part), beta);
            if (count == LANES<double>) return store_as<T>(out + start, weighted);
            T last[LANES<double>];
            store_as<T>(last, weighted);
            std::copy_n(last, count, out + start);
        });
        out[target] -= T(factor);
    }

  private:
    // (slope z - tau)_+, or NaN where z is NaN.
    INLINE Doubles clipped(Doubles z) const {
        const Doubles base = (alpha - 1) * z - tau;
        return base < 0 ? Doubles{} : base;
    }

    double alpha, tau;
    int beta;
};

}  // namespace sharmix
