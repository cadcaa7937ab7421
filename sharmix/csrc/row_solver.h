// The solution of one row with many candidates.
#pragma once

#include "candidates.h"
#include "global_maximum.h"

namespace sharmix {

#ifdef __FMA__
constexpr bool HAS_FMA = true;  // one rounding where w is computed from a logit
#else
constexpr bool HAS_FMA = false;
#endif

constexpr double SMOOTH = 2;     // the least beta for which it does; below, a class joins with a kink
constexpr double FLAT = 10;      // the beta up to which it does; above, powers of a rounded w lose digits
constexpr int64_t FEW = 16;      // candidates: up to these, single precision saves nothing
constexpr int64_t MANY = 1024;   // candidates, from which on a sample of them goes near the root first
constexpr int64_t SAMPLE = 8;    // one vector in so many
constexpr double COARSE = 0.1;   // the last step in the sample
constexpr double ALONE = 0.1;    // on either side of a root, outside the concave region
constexpr double EQUAL = 1e-13;  // objectives that differ by less: the sparser p is the answer

template <class T> class RowSolver {
  public:
    explicit RowSolver(int64_t classes) : base_(new T[padded(classes)]) {}

    // Writes p over the values of the candidates, and 0 up to the end of the last vector.
    Solution<double> solve(const Equation<T>& equation, Candidates<T>& candidates) {
        equation_ = equation;
        candidates_ = &candidates;
        candidates.pad(-std::numeric_limits<T>::infinity());
        low_ = equation.low;
        high_ = candidates.high;
        const Solution<double> solution{equation_, equation_.concave ? root() : largest_maximum(), scale_};
        write_probabilities(solution);
        return solution;
    }

  private:
    int64_t count() const { return candidates_->count; }
    const T* values() const { return candidates_->value.get(); }

    // The error of a root in single precision shifts the logarithms of p by their spread over the slope: for r >= q, by
    // beta at most. Where R_q makes the equation flatter than that, double precision takes the last steps.
    Point<double> root() {
        double start = high_;
        if (equation_.fits_float && count() > MANY) start = after(root_of_sample());
        if (equation_.fits_float && count() > FEW) {
            const bool to_the_end = HAS_FMA && equation_.shape.beta >= SMOOTH && equation_.shape.beta <= FLAT;
            const Point<double> point = root<T>(start, to_the_end ? equation_.last_step : NEAR);
            if (to_the_end && point.slope >= equation_.orders.delta() * point.spread) return point;
            start = after(point);
        }
        return root<double>(start, equation_.last_step);
    }

    // Where Newton's method goes on from a point.
    double after(const Point<double>& point) const {
        const double y = point.y + point.step();
        return std::isfinite(y) ? std::min(high_, std::max(low_, y)) : high_;
    }

    // The point whose next step is at most `last_step`.
    template <class Real> Point<double> root(double start, double last_step) {
        return newton([&](double y) { return at<Real>(y); }, start, low_, high_ + MARGIN, last_step);
    }

    // Near the root: that of every SAMPLE-th vector of candidates, each of which stands for SAMPLE.
    Point<double> root_of_sample() const {
        const auto at = [&](double y) {
            const auto line = line_of_u<T>(scale(y));
            auto sums = sums_over<OneRow<T>>(values(), padded(count()), line, equation_.shape, (T*)nullptr, SAMPLE);
            for (double* part : {&sums.total, &sums.base_u, &sums.base_uu, &sums.power_u}) *part *= SAMPLE;
            return Point<double>(equation_.orders, y, sums);
        };
        return newton(at, high_, low_, high_ + MARGIN, COARSE);
    }

    // Outside the concave region. Where single precision finds that one root is the largest maximum, double precision only
    // has to come nearer to it; else it decides.
    Point<double> largest_maximum() {
        if (HAS_FMA && equation_.fits_float && count() > FEW) {
            const Cells found = cells_of_maximum<T>(SINGLE);
            if (found.rising.size() == 1 && found.small.empty()) return root_in(found.rising[0]);
        }
        Cells found = cells_of_maximum<double>(DOUBLE);
        found.rising.insert(found.rising.end(), found.small.begin(), found.small.end());
        if (found.rising.size() == 1) return root_in(found.rising[0]);
        double y = equation_.low, largest = -1;
        std::sort(found.rising.begin(), found.rising.end(), [](const Cell& a, const Cell& b) { return a.low.y < b.low.y; });
        for (const Cell& cell : found.rising) {
            const Point<double> point = root_in(cell);
            const double objective = point.objective(equation_.orders);
            if (objective > largest + EQUAL) y = point.y, largest = objective;
        }
        return at<double>(y);
    }

    Point<double> root_in(const Cell& cell) {
        low_ = cell.low.y - MARGIN;
        high_ = cell.high.y;
        double start = low_ < near_ && near_ < high_ ? near_ : (low_ + high_) / 2;
        if (equation_.fits_float && count() > FEW) start = after(root<T>(start, NEAR));
        return root<double>(start, equation_.last_step);
    }

    // A first cut on both sides of some root, near which the equation rises, leaves little to bound.
    template <class Real> Cells cells_of_maximum(Precision precision) {
        const Orders& orders = equation_.orders;
        const End high = bound_by_entropy<Real>();
        near_ = after(root<Real>(count() > MANY ? after(root_of_sample()) : high_, ALONE / 3));
        std::vector<End> ends{{orders, at<Real>(low_)}};
        for (double y : {near_ - ALONE, near_ + ALONE})
            if (y > ends.back().y && y < high.y) ends.push_back({orders, at<Real>(y)});
        ends.push_back(high);
        const auto narrow = [&](double y) { candidates_->narrow(y, equation_); };
        return sharmix::cells_of_maximum([&](double y) { return at<Real>(y); }, narrow, orders, ends, precision);
    }

    // As y <= (2 - 1/q - r) R_q at every root, and R_q rises with y, R_q bounds the roots below.
    template <class Real> End bound_by_entropy() {
        const Orders& orders = equation_.orders;
        while (true) {
            const Point<double> point = at<Real>(high_ + MARGIN);
            const double bound = equation_.feedback * point.renyi;
            if (!(bound < 0.9 * high_ && high_ >= MARGIN)) return {orders, point};  // also where it is no number
            high_ = bound;
            candidates_->narrow(high_ + MARGIN, equation_);
        }
    }

    double scale(double y) const { return equation_.orders.delta() * std::exp(-y); }

    template <class Real> LineOfU<Vector<Real>> line_of_u(double scale) const {
        return {all(Real(candidates_->maximum)), all(Real(equation_.unit)), all(Real(scale))};
    }

    template <class Real> Point<double> at(double y) {
        ends_in_w_ = HAS_FMA && std::is_same_v<Real, float> && equation_.shape.beta <= FLAT;
        if (ends_in_w_) return at_rounded_line(y);
        scale_ = scale(y);
        const auto line = line_of_u<Real>(scale_);
        const auto sums = sums_over<OneRow<Real>>(values(), padded(count()), line, equation_.shape, base_.get());
        return Point<double>(equation_.orders, y, sums);
    }

    // In single precision, with the y and the sums that are exactly those of the rounded line: it makes w of the maximum
    // 1 + lift instead of 1, which scales all w alike. Where the maximum is far from 0 logits are measured from it, else its
    // multiple is part of the constant: neither rounds.
    Point<double> at_rounded_line(double y) {
        const double wanted = scale(y), slope = T(wanted * equation_.unit), maximum = candidates_->maximum;
        const double origin = std::abs(maximum * slope) >= 2 ? maximum : 0, at_origin = T(1 - (maximum - origin) * slope);
        line_ = {all(T(origin)), all(T(slope)), all(T(at_origin))};
        const double lift = at_origin + (maximum - origin) * slope - 1;
        scale_ = slope / equation_.unit / (1 + lift);
        lifted_ = std::exp(equation_.shape.beta * std::log1p(lift));
        auto sums = sums_over<OneRow<T>>(values(), padded(count()), line_, equation_.shape, base_.get());
        const double mean = (sums.power_u / sums.total - lift) / (1 + lift);
        sums.total /= lifted_;
        sums.power_u = mean * sums.total;
        return Point<double>(equation_.orders, y - std::log(scale_ / wanted), sums);
    }

    // From w^(beta-1) at the last point; 0 times infinity would be no number.
    void write_probabilities(const Solution<double>& solution) {
        const double level = 1 / solution.total;
        T* values = candidates_->value.get();
        if (ends_in_w_) {
            const T turn = T(solution.turn - 1), rounded_level = T(level / lifted_);
            for (int64_t j = 0; j < padded(count()); j += LANES<T>) {
                const Vector<T> w = larger(line_(load<T>(values + j)), Vector<T>{});
                const Vector<T> turned = larger(w + (w - 1) * turn, Vector<T>{});
                store(values + j, load<T>(base_.get() + j) * turned * rounded_level);
            }
        } else {
            const auto line = line_of_u<double>(scale_);
            for (int64_t j = 0; j < padded(count()); j += LANES<double>) {
                const Doubles u = larger(line(load<double>(values + j)), Doubles{} - 1);
                const Doubles turned = larger(1 + u * solution.turn, Doubles{});
                store_as<T>(values + j, load<double>(base_.get() + j) * turned * level);
            }
        }
    }

    Equation<T> equation_;
    Candidates<T>* candidates_ = nullptr;
    std::unique_ptr<T[]> base_;  // w^(beta-1) of each
    double low_ = 0, high_ = 0;  // the bracket of y
    double near_ = 0;            // a root that the first cells lie around
    // Of the last evaluation: the scale of u; and in single precision, the line of w, and by how much it makes a power of w
    // too large.
    double scale_ = 0, lifted_ = 1;
    LineOfW<Vector<T>> line_{};
    bool ends_in_w_ = false;
};

}  // namespace sharmix
