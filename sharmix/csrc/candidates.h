// Which classes of a row can be in the support.
#pragma once

#include "equation.h"
#include "support.h"

namespace sharmix {

// Rows of at least this many classes get a better bound first. It saves a quarter of the map's forward pass at 64 x 1000.
constexpr int64_t LONG = 512;

// Rounds a threshold down: rounded up, it could exclude a candidate.
template <class T> T just_below(T threshold) {
    using Limits = std::numeric_limits<T>;
    return threshold - std::abs(threshold) * Limits::epsilon() - Limits::min();  // nextafter would be a call
}

// The sums over some logits. Never inlined: in some callers the compiler would drop the two sums that `root_bound` does not
// read, and would then fuse and round the other sums in another way.
template <class T>
__attribute__((noinline)) Sums<double> sums_at(const T* values, int64_t count, const LineOfU<Vector<T>>& line,
                                               const Shape& shape) {
    return sums_over<OneRow<T>>(values, count, line, shape);
}

// A bound of e^y by some logits of a row and its maximum. For r >= q, where R_q only lowers the root, e^y is at most the s at
// which the beta-norm of (s + delta x_i)_+ is 1. The norm over some of the entries gives a bound too. The norm is convex in
// s, so Newton's step from s = 1 ends above this s, and near it.
template <class T> double root_bound(const T* values, int64_t count, double maximum, const Equation<T>& equation) {
    const Orders& orders = equation.orders;
    if (orders.r < orders.q || (sizeof(T) != sizeof(double) && !equation.fits_float)) return equation.highest;
    const LineOfU<Vector<T>> line{all(T(maximum)), all(T(equation.unit)), all(T(orders.delta()))};
    const auto sums = sums_at(values, count, line, equation.shape);
    const double s = 1 - (1 - std::pow(sums.total, -orders.delta())) * sums.total / (sums.total - sums.base_u);
    return s > 0 ? s : equation.highest;  // where 1/T0 is no number
}

// The entries of a row that can be in its support, its largest logit, and a bound of y at the root.
template <class T> class Candidates : public List<T> {
  public:
    using List<T>::List;

    void find(const T* row, int64_t classes, const Equation<T>& equation) {
        maximum = sharmix::maximum(row, classes, *this);
        if (!is_defined()) return;
        double s = equation.highest;
        if (!equation.concave) s = bound_by_count(row, classes, equation);
        else if (classes >= LONG) s = root_bound(this->value.get(), this->count, maximum, equation);
        high = s == equation.highest ? equation.high : std::log(s);
        collect(row, classes, least_logit(s, equation), *this);
    }

    // Drops the candidates that are outside the support for every root up to y.
    void narrow(double y, const Equation<T>& equation) { this->keep(least_logit(std::exp(y), equation)); }

    // A row with a NaN or +inf, or with -inf alone, is undefined.
    bool is_defined() const { return std::isfinite(maximum); }

    double maximum = 0, high = 0;

  private:
    // Every logit of the support is above this threshold, for any root up to log s.
    T least_logit(double s, const Equation<T>& equation) const {
        const double reach = (1 + MARGIN) * s * equation.orders.temperature / equation.orders.delta();
        return just_below(T(maximum - reach));
    }

    // A bound of e^y outside the concave region. Every root has y <= (2 - 1/q - r) R_q, and R_q is largest for equal p.
    double bound_by_count(const T* row, int64_t classes, const Equation<T>& equation) const {
        double s = equation.highest;
        for (int64_t before = classes, count;; before = count) {
            count = count_above(row, classes, least_logit(s, equation));
            if (count >= before - before / 8) return s;
            s = std::pow(double(count), equation.feedback);
        }
    }
};

}  // namespace sharmix
