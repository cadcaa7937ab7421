// Solves one row with many candidates.
#pragma once

#include <optional>

#include "candidates.h"
#include "global_maximum.h"

namespace sharmix {

constexpr int64_t FEW = 16;      // candidates: up to these, single precision saves nothing
constexpr int64_t MANY = 1024;   // candidates: from these on, a sample is solved first; saves a tenth at 256 x 10000 dense
constexpr int64_t SAMPLE = 8;    // a sample is one vector in eight
constexpr double COARSE = 0.1;   // the last step in the sample
constexpr double ALONE = 0.1;    // outside the concave region, a cell around a root reaches so far on either side
constexpr double EQUAL = 1e-13;  // of objectives that differ by less, the one with the sparser p is taken

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

    // An error of the root in single precision is multiplied by spread/slope in the logarithms of p: for r >= q, by beta at
    // most. Where R_q makes the equation flatter, double precision takes the last steps.
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

    // The y after the Newton step from a point, kept inside the bracket.
    double after(const Point<double>& point) const {
        const double y = point.y + point.step();
        return std::isfinite(y) ? std::min(high_, std::max(low_, y)) : high_;
    }

    // The point whose next step is at most `last_step`.
    template <class Real> Point<double> root(double start, double last_step) {
        return newton([&](double y) { return at<Real>(y); }, start, low_, high_ + MARGIN, last_step);
    }

    // A point near the root: the root of every SAMPLE-th vector of candidates, each of which stands for SAMPLE vectors.
    Point<double> root_of_sample() const {
        const auto at = [&](double y) {
            const auto line = line_of_u<T>(scale(y));
            auto sums = sums_over<OneRow<T>>(values(), padded(count()), line, equation_.shape, (T*)nullptr, SAMPLE);
            for (double* part : {&sums.total, &sums.base_u, &sums.base_uu, &sums.power_u}) *part *= SAMPLE;
            return Point<double>(equation_.orders, y, sums);
        };
        return newton(at, high_, low_, high_ + MARGIN, COARSE);
    }

    // Outside the concave region. If single precision finds one root that must be the largest maximum, double precision only
    // refines this root; else double precision decides. It saves half of the forward pass at 256 x 10000 dense.
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

    // The first cells end a little on both sides of a root. The equation rises near the root, so little is left to bound.
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

    // y <= (2 - 1/q - r) R_q at every root, and R_q rises with y. So R_q at one y bounds the roots below y.
    template <class Real> End bound_by_entropy() {
        const Orders& orders = equation_.orders;
        while (true) {
            const Point<double> point = at<Real>(high_ + MARGIN);
            const double bound = equation_.feedback * point.renyi;
            if (!(bound < 0.9 * high_ && high_ >= MARGIN)) return {orders, point};  // also for NaN
            high_ = bound;
            candidates_->narrow(high_ + MARGIN, equation_);
        }
    }

    double scale(double y) const { return equation_.orders.delta() * std::exp(-y); }

    template <class Real> LineOfU<Vector<Real>> line_of_u(double scale) const {
        return {all(Real(candidates_->maximum)), all(Real(equation_.unit)), all(Real(scale))};
    }

    template <class Real> Point<double> at(double y) {
        scale_ = scale(y);
        rounded_.reset();
        if (HAS_FMA && std::is_same_v<Real, float> && equation_.shape.beta <= FLAT) return at_rounded_line(y);
        const auto line = line_of_u<Real>(scale_);
        const auto sums = sums_over<OneRow<Real>>(values(), padded(count()), line, equation_.shape, base_.get());
        return Point<double>(equation_.orders, y, sums);
    }

    // Sums in single precision. The y and the sums of the point belong exactly to the rounded line.
    Point<double> at_rounded_line(double y) {
        const RoundedLine<T>& rounded = rounded_.emplace(candidates_->maximum, equation_.unit, scale_, equation_.shape.beta);
        scale_ = rounded.scale;
        auto sums = sums_over<OneRow<T>>(values(), padded(count()), rounded.line, equation_.shape, base_.get());
        const double mean = (sums.power_u / sums.total - rounded.lift) / (1 + rounded.lift);
        sums.total /= rounded.lifted;
        sums.power_u = mean * sums.total;
        return Point<double>(equation_.orders, y - rounded.stretch, sums);
    }

    void write_probabilities(const Solution<double>& solution) {
        if (rounded_) write_probabilities<T>(rounded_->line, solution.turn, 1 / (solution.total * rounded_->lifted));
        else write_probabilities<double>(line_of_u<double>(scale_), solution.turn, 1 / solution.total);
    }

    template <class Real, class Line> void write_probabilities(const Line& line, double turn, double level) {
        T* values = candidates_->value.get();
        for (int64_t j = 0; j < padded(count()); j += LANES<Real>) {
            const Vector<Real> place = line(load<Real>(values + j)), power = load<Real>(base_.get() + j);
            store_as<T>(values + j, probability(line, place, power, all(Real(turn)), all(Real(level))));
        }
    }

    Equation<T> equation_;
    Candidates<T>* candidates_ = nullptr;
    std::unique_ptr<T[]> base_;  // w^(beta-1) of each
    double low_ = 0, high_ = 0;  // the bracket of y
    double near_ = 0;            // a root; the first cells lie around it
    double scale_ = 0;           // of u, in the last evaluation
    std::optional<RoundedLine<T>> rounded_;  // the line of w in the last evaluation, in single precision
};

}  // namespace sharmix
