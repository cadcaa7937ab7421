// The solution of rows: which classes can matter, where the root is, and the distribution it gives.
#pragma once

#include <vector>

#include "global_maximum.h"
#include "support.h"

namespace sharmix {

// Of the part of the last step that a first-order correction of p leaves.
template <class T> constexpr double CORRECTED_TOLERANCE = sizeof(T) == 4 ? 1e-10 : 1e-18;
constexpr int64_t GROUP = LANES<double>;  // rows worked on together, one in each lane
constexpr double NEAR = 3e-3;    // the last step in single precision
constexpr int64_t FEW = 16;      // candidates: up to these, single precision saves nothing
constexpr int64_t MANY = 1024;   // candidates, from which on a sample of them goes near the root first
constexpr int64_t SAMPLE = 8;    // one vector in so many
constexpr double COARSE = 0.1;   // the last step in the sample
constexpr int64_t LONG = 512;    // classes, from which on a first look at some of them pays
constexpr double MARGIN = 1e-3;  // the bracket is exact up to rounding, and a root may lie on its end

// A threshold must not be rounded up to what it is to let through.
template <class T> T just_below(T threshold) {
    return std::nextafter(threshold, -std::numeric_limits<T>::infinity());
}

// What orders say of all rows of one length.
template <class T> struct Equation {
    Equation() = default;

    Equation(const Orders& orders, int64_t classes) : orders(orders), shape(shape_of<T>(orders)) {
        const double most = std::log(double(classes));
        concave = orders.r >= 2 - 1 / orders.q - 1e-12;  // a rounded r = 2 - 1/q counts as concave
        low = -std::max(orders.r - 1, 0.0) * most - MARGIN;
        high = std::max(2 - 1 / orders.q - orders.r, 0.0) * most;
        unit = 1 / orders.temperature;
        last_step = std::max(LEAST_STEP, std::pow(CORRECTED_TOLERANCE<T>, 1 / std::min(shape.beta, 2.0)));
    }

    Orders orders{};
    Shape shape;
    bool concave = true;
    double low, high;  // the bracket of y
    double unit;       // x = (z - maximum) unit
    double last_step;  // Newton's, in double precision
};

// p_i = (1 + scale x_i)_+^beta / total, with x_i = (z_i - maximum) unit; also R_q of p, and the conjugate of x. From
// w^(beta-1) where it was computed last, p_i is that times (1 + turn u_i)_+/total, with the u_i of that time.
template <class S> struct Solution {
    // At the end of the step from a point, to first order, by d(w^beta)/dy = -beta w^(beta-1) u.
    template <class T> Solution(const Equation<T>& equation, const Point<S>& point, S maximum, S last_scale)
        : maximum(maximum), last_scale(last_scale) {
        const double beta = equation.shape.beta;
        const S last = point.step(), step = where(absolute(last) <= equation.last_step, last, S{});
        scale = last_scale * exp(-step);
        total = point.sums.total - beta * step * point.sums.base_u;
        turn = 1 - beta * step;
        renyi = point.renyi + step * point.renyi_slope;
        const S objective = point.linear(equation.orders) + point.scaled_entropy(equation.orders);
        conjugate = larger(objective, S{}) * equation.orders.temperature;
    }

    explicit Solution(S undefined)
        : maximum(undefined), last_scale(undefined), scale(undefined), total(undefined), turn(undefined),
          renyi(undefined), conjugate(undefined) {}

    S maximum, last_scale, scale, total, turn, renyi, conjugate;
};

// Solves rows of one length, one after another.
template <class T> class RowSolver {
  public:
    explicit RowSolver(int64_t classes)
        : classes_(classes), candidates_(classes), base_(new double[padded(classes)]),
          probabilities_(new T[padded(classes)]) {}

    const Solution<double>& solve(const T* row, const Orders& orders) {
        if (!(orders == equation_.orders)) equation_ = Equation<T>(orders, classes_);
        maximum_ = maximum(row, classes_, candidates_);
        if (std::isfinite(maximum_)) return solution_ = solve_finite(row);
        candidates_.count = 0;
        return solution_ = Solution<double>(std::numeric_limits<double>::quiet_NaN());
    }

    // Of the row solved last; all other classes have p = 0.
    const List<T>& candidates() const { return candidates_; }
    // Their p, 0 up to the end of the last vector.
    const T* probabilities() {
        for (int64_t j = 0; j < padded(count()); j += LANES<double>) {
            Doubles u = (load<double>(candidates_.value.get() + j) - maximum_) * equation_.unit * solution_.last_scale;
            u = u > -1 ? u : Doubles{} - 1;  // 0 times infinity is no number
            const Doubles weight = load<double>(base_.get() + j) * larger(1 + u * solution_.turn, Doubles{});
            store_as<T>(probabilities_.get() + j, weight * (1 / solution_.total));
        }
        return probabilities_.get();
    }

  private:
    int64_t count() const { return candidates_.count; }

    Solution<double> solve_finite(const T* row) {
        const Orders& orders = equation_.orders;
        const double temperature = orders.temperature;
        const bool long_row = classes_ >= LONG && orders.r >= orders.q;
        const double high = long_row ? bound_by_large_entries() : equation_.high;
        collect(row, classes_, threshold(high + MARGIN), candidates_);
        candidates_.pad(-std::numeric_limits<T>::infinity());
        if (!equation_.concave) {
            const auto point = [&](double y) { return at<double>(orders, y); };
            const auto narrow = [&](double y) { candidates_.keep(threshold(y)); };
            return solution(at<double>(orders, global_maximum(point, narrow, orders, equation_.low, high + MARGIN)));
        }
        const bool fits_float = sizeof(T) == 4 && temperature > 1e-20 && temperature < 1e20;
        double start = fits_float && count() > MANY ? start_from_sample(high) : high;
        if (fits_float && count() > FEW) start = after(root<T>(orders, start, high, NEAR), high);
        return solution(root<double>(orders, start, high, equation_.last_step));
    }

    // What a logit must be above to be in the support for any root up to y.
    T threshold(double y) const {
        return just_below(T(maximum_ - std::exp(y) * equation_.orders.temperature / equation_.orders.delta()));
    }

    // For r >= q, where R_q only lowers the root, some of the entries alone have theirs above it.
    double bound_by_large_entries() {
        const Orders without_feedback{equation_.orders.q, equation_.orders.q, equation_.orders.temperature};
        const double high = equation_.high;
        return std::min(high, after(root<T>(without_feedback, high, high, NEAR), high) + NEAR);
    }

    // Near the root: that of every SAMPLE-th vector of candidates, each of which stands for SAMPLE.
    double start_from_sample(double high) {
        const auto at = [&](double y) {
            const double scale = equation_.orders.delta() * std::exp(-y);
            auto sums = sums_over<OneRow<T>>(candidates_.value.get(), padded(count()), maximum_, equation_.unit, scale,
                                             equation_.shape, nullptr, SAMPLE);
            for (double* part : {&sums.total, &sums.base_u, &sums.base_uu, &sums.power_u}) *part *= SAMPLE;
            return Point<double>(equation_.orders, y, sums);
        };
        return after(newton(at, high, equation_.low, high + MARGIN, COARSE), high);
    }

    // The point whose next step is at most `last_step`.
    template <class Real> Point<double> root(const Orders& orders, double start, double high, double last_step) {
        return newton([&](double y) { return at<Real>(orders, y); }, start, equation_.low, high + MARGIN, last_step);
    }

    template <class Real> Point<double> at(const Orders& orders, double y) {
        scale_ = orders.delta() * std::exp(-y);
        const auto sums = sums_over<OneRow<Real>>(candidates_.value.get(), padded(count()), maximum_, equation_.unit, scale_,
                                                  equation_.shape, base_.get());
        return Point<double>(orders, y, sums);
    }

    double after(const Point<double>& point, double high) const {
        const double y = point.y + point.step();
        return std::isfinite(y) ? std::min(high, std::max(equation_.low, y)) : high;
    }

    Solution<double> solution(const Point<double>& point) const { return {equation_, point, maximum_, scale_}; }

    int64_t classes_;
    Equation<T> equation_;
    List<T> candidates_;
    std::unique_ptr<double[]> base_;  // w^(beta-1) of each
    std::unique_ptr<T[]> probabilities_;
    double maximum_ = 0, scale_ = 0;
    Solution<double> solution_{0.0};
};

constexpr int64_t CROWD = 256;            // entries of a row, from which on it is worked on alone
constexpr int64_t CROWD_OF_LOGARITHMS = 48;  // the same where powers are not products
constexpr int64_t SHORT = 1024;               // classes, up to which a group of rows stays in the first-level cache

// Lists of entries of a group of rows, and as columns: the j-th of each list in the lanes of one vector.
template <class T> struct Group {
    explicit Group(int64_t classes) {
        for (int64_t lane = 0; lane < GROUP; ++lane) lists.emplace_back(classes);
    }

    int64_t longest() const {
        int64_t count = 0;
        for (const List<T>& list : lists) count = std::max(count, list.count);
        return count;
    }

    // The lists as columns, filled up with `filler`.
    void transpose(double filler, std::vector<double>& columns) const {
        columns.assign(longest() * GROUP, filler);
        for (int64_t lane = 0; lane < GROUP; ++lane)
            for (int64_t j = 0; j < lists[lane].count; ++j) columns[j * GROUP + lane] = lists[lane].value[j];
    }

    std::vector<List<T>> lists;
};

// Solves groups of rows of the same orders, in the concave region, one row in each lane.
template <class T> class GroupSolver {
  public:
    GroupSolver(const Orders& orders, int64_t classes) : classes_(classes), equation_(orders, classes), group_(classes) {}

    bool concave() const { return equation_.concave; }

    // False if the rows have too many candidates to be solved together.
    bool solve(const T* rows, int64_t count) {
        const double nothing = -std::numeric_limits<double>::infinity();
        for (int64_t lane = 0; lane < GROUP; ++lane)
            maximum_[lane] = maximum(rows + std::min(lane, count - 1) * classes_, classes_, group_.lists[lane]);
        // a row with a NaN, with nothing but -inf, or with +inf, is undefined
        maximum_ = absolute(maximum_) < -nothing ? maximum_ : Doubles{} + std::numeric_limits<double>::quiet_NaN();
        const Orders& orders = equation_.orders;
        Doubles high = Doubles{} + equation_.high;
        if (classes_ >= LONG && orders.r >= orders.q) {
            group_.transpose(nothing, columns_);
            const auto point = root({orders.q, orders.q, orders.temperature}, high, NEAR);
            const Doubles bound = point.y + point.step() + NEAR;
            high = bound < high ? bound : high;
        }
        const Doubles reach = exp(high + MARGIN) * orders.temperature / orders.delta();
        for (int64_t lane = 0; lane < GROUP; ++lane) {
            List<T>& list = group_.lists[lane];
            list.count = 0;
            if (lane < count && maximum_[lane] == maximum_[lane])
                collect(rows + lane * classes_, classes_, just_below(T(maximum_[lane] - reach[lane])), list);
        }
        if (group_.longest() > (equation_.shape.integer == ANY ? CROWD_OF_LOGARITHMS : CROWD)) return false;
        group_.transpose(nothing, columns_);
        const auto point = root(orders, high, equation_.last_step);
        solution_ = Solution<Doubles>(equation_, point, maximum_, scale_);
        for (size_t j = 0; j < columns_.size(); j += GROUP) store(columns_.data() + j, probability(j));
        return true;
    }

    // Of the group solved last.
    const Solution<Doubles>& solution() const { return solution_; }
    const std::vector<double>& probabilities() const { return columns_; }  // [longest list, GROUP], then 0
    const List<T>& candidates(int64_t lane) const { return group_.lists[lane]; }

  private:
    Point<Doubles> root(const Orders& orders, Doubles high, double last_step) {
        base_.resize(columns_.size());
        const auto at = [&](Doubles y) {
            scale_ = orders.delta() * exp(-y);
            const auto sums = sums_over<ManyRows>(columns_.data(), int64_t(columns_.size()), maximum_, equation_.unit, scale_,
                                                  equation_.shape, base_.data());
            return Point<Doubles>(orders, y, sums);
        };
        return newton(at, high, Doubles{} + equation_.low, high + MARGIN, last_step);
    }

    Doubles probability(size_t j) const {
        Doubles u = (load<double>(columns_.data() + j) - maximum_) * equation_.unit * solution_.last_scale;
        u = u > -1 ? u : Doubles{} - 1;  // 0 times infinity is no number
        return load<double>(base_.data() + j) * larger(1 + u * solution_.turn, Doubles{}) / solution_.total;
    }

    int64_t classes_;
    Equation<T> equation_;
    Group<T> group_;
    std::vector<double> columns_, base_;
    Doubles maximum_ = {}, scale_ = {};
    Solution<Doubles> solution_{Doubles{}};
};

}  // namespace sharmix
