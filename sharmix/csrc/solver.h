// The solution of one row: which classes can matter, where the root is, and the distribution it gives.
#pragma once

#include "global_maximum.h"
#include "support.h"

namespace sharmix {

// p_i = (1 + scale x_i)_+^beta / total, with x_i = (z_i - maximum) inverse_temperature
struct Distribution {
    double maximum, inverse_temperature, scale, total;
};

// Of the part of the last step that a first-order correction of p leaves.
template <class T> constexpr double CORRECTED_TOLERANCE = sizeof(T) == 4 ? 1e-10 : 1e-18;
constexpr double NEAR = 1e-3;    // the last step in single precision
constexpr int64_t FEW = 16;      // candidates: up to these, single precision saves nothing
constexpr int64_t LONG = 512;    // classes, from which on a first look at some of them pays
constexpr double MARGIN = 1e-3;  // the bracket is exact up to rounding, and a root may lie on its end

// Solves rows of one length, one after another.
template <class T> class RowSolver {
  public:
    explicit RowSolver(int64_t classes) : classes_(classes), candidates_(classes), base_(new double[padded(classes)]) {}

    Distribution solve(const T* row, const Orders& orders) {
        if (!(orders == orders_)) prepare(orders);
        maximum_ = maximum(row, classes_, candidates_);
        if (!std::isfinite(maximum_)) {
            candidates_.count = 0;
            conjugate_ = std::numeric_limits<double>::quiet_NaN();
            return {conjugate_, conjugate_, conjugate_, conjugate_};
        }
        const double high = classes_ >= LONG && orders.r >= orders.q ? bound_by_large_entries() : high_;
        collect(row, classes_, T(maximum_ - std::exp(high + MARGIN) * reach_), candidates_);
        candidates_.pad(-std::numeric_limits<T>::infinity());
        double start = high;
        if (!concave_) {
            start = global_maximum([&](double y) { return at<double>(orders_, y); }, orders_, low_, high + MARGIN);
            return finish(at<double>(orders_, start));
        }
        if (single_precision_will_do_ && candidates_.count > FEW) start = after(root<T>(orders_, high, high, NEAR), high);
        return finish(root<double>(orders_, start, high, last_step_));
    }

    // Of the row solved last, the conjugate of the logits measured from their largest, and the candidates; all other
    // classes have p = 0.
    double conjugate() const { return conjugate_; }
    int64_t count() const { return candidates_.count; }
    int64_t place(int64_t i) const { return candidates_.place[i]; }
    T probability(int64_t i) const {
        const double u = (double(candidates_.value[i]) - maximum_) * inverse_temperature_ * scale_;
        return T(base_[i] * (1 + u * turn_) * inverse_total_);
    }

  private:
    void prepare(const Orders& orders) {
        orders_ = orders;
        shape_ = Shape<T>(orders.delta());
        concave_ = orders.r >= 2 - 1 / orders.q - 1e-12;  // a rounded r = 2 - 1/q counts as concave
        const double most = std::log(double(classes_));
        low_ = -std::max(orders.r - 1, 0.0) * most - MARGIN;
        high_ = std::max(2 - 1 / orders.q - orders.r, 0.0) * most;
        reach_ = orders.temperature / orders.delta();
        inverse_temperature_ = 1 / orders.temperature;
        single_precision_will_do_ = sizeof(T) == 4 && std::abs(std::log(orders.temperature)) < 50;
        last_step_ = std::max(LEAST_STEP, std::pow(CORRECTED_TOLERANCE<T>, 1 / std::min(shape_.beta, 2.0)));
    }

    // For r >= q, where R_q only lowers the root, some of the entries alone have theirs above it.
    double bound_by_large_entries() {
        const Orders without_feedback{orders_.q, orders_.q, orders_.temperature};
        return std::min(high_, after(root<T>(without_feedback, high_, high_, NEAR), high_) + NEAR);
    }

    // The point whose next step is at most `last_step`.
    template <class Real> Point root(const Orders& orders, double start, double high, double last_step) {
        return newton([&](double y) { return at<Real>(orders, y); }, start, low_, high + MARGIN, last_step);
    }

    template <class Real> Point at(const Orders& orders, double y) { return Point(orders, y, sums<Real>(y)); }

    double after(const Point& point, double high) const {
        return std::min(high, std::max(low_, point.y + point.step()));
    }

    template <class Real> Sums sums(double y) {
        scale_ = orders_.delta() * std::exp(-y);
        return with_exponent(shape_.integer, [&](auto exponent) { return sums_of<Real, exponent>(); });
    }

    template <class Real, int Exponent> Sums sums_of() {
        using V = Vector<Real>;
        const Real maximum = Real(maximum_), unit = Real(inverse_temperature_), scale = Real(scale_), exponent = Real(shape_.beta - 1);
        V total = {}, base_u = {}, base_uu = {}, power_u = {};
        for (int64_t j = 0; j < padded(candidates_.count); j += LANES<Real>) {
            V u = (load<Real>(candidates_.value.get() + j) - maximum) * unit * scale;
            const auto inside = u > -1;
            u = inside ? u : V{} - 1;
            const V base = inside ? power<Exponent>(u, shape_.integer, exponent) : V{};
            const V part = base * u, weighted = base + part;
            total += weighted;
            base_u += part;
            base_uu += part * u;
            power_u += weighted * u;
            if constexpr (sizeof(Real) == 8) store(base_.get() + j, base);
        }
        return {sum<Real>(total), sum<Real>(base_u), sum<Real>(base_uu), sum<Real>(power_u)};
    }

    // p at the end of the last step, to first order, by d(w^beta)/dy = -beta w^(beta-1) u.
    Distribution finish(const Point& point) {
        const double last = point.step(), step = std::abs(last) <= last_step_ ? last : 0;
        const double total = point.sums.total - shape_.beta * step * point.sums.base_u;
        const double objective = std::max(0.0, point.linear(orders_) + point.scaled_entropy(orders_));
        turn_ = 1 - shape_.beta * step;
        inverse_total_ = 1 / total;
        conjugate_ = objective * orders_.temperature;
        return {maximum_, inverse_temperature_, scale_ * std::exp(-step), total};
    }

    int64_t classes_;
    Orders orders_{};
    Shape<T> shape_;
    bool concave_, single_precision_will_do_;
    double low_, high_, reach_, inverse_temperature_, last_step_;
    List<T> candidates_;
    std::unique_ptr<double[]> base_;  // w^(beta-1) of each
    double maximum_, scale_, turn_, inverse_total_, conjugate_;
};

}  // namespace sharmix
