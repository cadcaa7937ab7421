// Derivatives of the output of rows, in closed form of the output; the notation is that of sharmix/_mathematics/sensitivity.py.
#pragma once

#include <array>

#include "solver.h"

namespace sharmix {

// By q, r and temperature.
template <class S> struct ParameterGradients {
    S q = {}, r = {}, temperature = {};
};

constexpr int64_t SUMMED = 1024;  // numbers, after which a sum goes on in double precision

// The sums of what add(j, parts) adds to its parts for the vectors from j = 0 to `count`.
template <class Layout, int Count, class Add> std::array<typename Layout::S, Count> sums_of(int64_t count, Add add) {
    using V = typename Layout::V;
    std::array<typename Layout::S, Count> sums = {};
    for (int64_t start = 0; start < count; start += SUMMED) {
        V parts[Count] = {};
        for (int64_t j = start; j < std::min(count, start + SUMMED); j += LANES<typename Layout::Real>) add(j, parts);
        for (int i = 0; i < Count; ++i) sums[i] += Layout::sum(parts[i]);
    }
    return sums;
}

inline double ratio_slope(double x) { return expm1_ratio_slope(all(x), expm1(all(x)))[0]; }
inline Doubles ratio_slope(Doubles x) { return expm1_ratio_slope(x, expm1(x)); }

// Of the conjugate at fixed p [count] (envelope theorem), whose Renyi entropy is known.
template <class Layout>
auto conjugate_gradients(const typename Layout::Real* p, int64_t count, typename Layout::S renyi, const Orders& orders) {
    using Real = typename Layout::Real;
    using V = typename Layout::V;
    using S = typename Layout::S;
    const Real delta = Real(orders.delta());
    const V level = Layout::spread(renyi);
    const auto [renyi_slope] = sums_of<Layout, 1>(count, [&](int64_t j, V* parts) {
        const V probability = load<Real>(p + j), t = log(probability) + level, x = delta * t;
        parts[0] -= probability * t * t * expm1_ratio_slope(x, expm1(x));
    });
    const S heat = (1 - orders.r) * renyi, entropy = renyi * expm1_ratio(heat);
    return ParameterGradients<S>{orders.temperature * (exp(heat) * renyi_slope - entropy / orders.q) / orders.q,
                                 -orders.temperature / orders.q * renyi * renyi * ratio_slope(heat), entropy / orders.q};
}

// grad -> (dp/dz) grad on a support, and (dp/dtheta).grad where it is asked for.
//
// p and grad [count]; grad is overwritten. Where p is 0 it adds nothing, and grad must be finite.
template <class Layout> class PullBack {
    using Real = typename Layout::Real;
    using V = typename Layout::V;
    using S = typename Layout::S;

  public:
    PullBack(const Real* p, Real* grad, int64_t count, const Orders& orders)
        : orders_(orders), delta_(orders.delta()), inverse_(Real(1 / delta_)), p_(p), grad_(grad), count_(count),
          level_(new Real[count]), rise_(new Real[count]), growth_(new Real[count]) {
        find_entropies();
        find_origin();
        const auto [along, escort, covariance] = sums_of<Layout, 3>(count, [&](int64_t j, V* parts) {
            const V direction = direction_at(j), ratio = ratio_at(j), spread = ratio * spread_at(j);
            parts[0] += spread * direction;
            parts[1] += ratio * direction;
            parts[2] += spread * tilt_at(j) * inverse_;
        });
        along_ = along;
        escort_ = escort;
        const double gap = orders.r - orders.q;
        stiffness_ = 1 + gap * orders.q * covariance;
        heat_ = orders.temperature * exp(-gap * renyi_);
    }

    ParameterGradients<S> parameters() const {
        const Real delta = Real(delta_);
        const V lowered = Layout::spread(reference_ + mirrored_), raised = Layout::spread(reference_ + renyi_);
        const V reference = Layout::spread(reference_);
        const auto [weight, along_p, along_weighted, tilted, shannon, renyi_slope] =
            sums_of<Layout, 6>(count_, [&](int64_t j, V* parts) {
                const V probability = load<Real>(p_ + j), direction = direction_at(j);
                const V level = load<Real>(level_.get() + j), tilt = tilt_at(j);
                const V u = level + lowered, t = level + raised;
                const V fall = -delta * spread_at(j) / load<Real>(growth_.get() + j);  // e^{-delta U} - 1
                const V weighted = probability * u * u * expm1_remainder(-delta * u, fall);
                parts[0] += weighted;
                parts[1] += probability * direction;
                parts[2] += weighted * direction;
                parts[3] += weighted * tilt * inverse_;
                parts[4] -= probability * (level + reference);
                parts[5] -= probability * t * t * expm1_ratio_slope(delta * t, tilt);
            });
        const double gap = orders_.r - orders_.q;
        const S response = renyi_slope + orders_.q * tilted;
        const S heating = (renyi_ - shannon - gap * response) / stiffness_;
        return {along_p * weight - along_weighted - heating * along_, along_ * renyi_ / stiffness_,
                -along_ / orders_.temperature / stiffness_};
    }

    void logits() {
        const double feedback = (orders_.r - orders_.q) * orders_.q;
        const V escort_mean = Layout::spread((1 - shift_) * escort_);
        const V escort_scale = Layout::spread((1 - shift_) * exp(delta_ * mirrored_) / heat_);
        const V spread_scale = Layout::spread(feedback / stiffness_ * exp(delta_ * renyi_) * along_ / heat_);
        for (int64_t j = 0; j < count_; j += LANES<Real>)
            store(grad_ + j,
                  ratio_at(j) * (escort_scale * (direction_at(j) - escort_mean) - spread_scale * spread_at(j)));
    }

  private:
    // R_q and R_{2-q}, from log p, e^x and e^x - 1 for x = (q-1) log(p/largest p).
    void find_entropies() {
        V top = {};
        for (int64_t j = 0; j < count_; j += LANES<Real>) top = load<Real>(p_ + j) > top ? load<Real>(p_ + j) : top;
        largest_ = Layout::largest(top);
        reference_ = log(largest_);
        const V reference = Layout::spread(reference_);
        const auto [risen, fallen] = sums_of<Layout, 2>(count_, [&](int64_t j, V* parts) {
            const V probability = load<Real>(p_ + j), level = log(probability) - reference;
            const auto [power_of_two, remainder] = exponential<V>(Real(delta_) * level);
            const V growth = power_of_two + power_of_two * remainder;
            const V rise = power_of_two * remainder + (power_of_two - 1);
            parts[0] += probability * rise;
            parts[1] -= probability * rise / growth;
            store(level_.get() + j, level);
            store(rise_.get() + j, rise);
            store(growth_.get() + j, growth);
        });
        renyi_ = -reference_ - log1p(risen) / delta_;
        mirrored_ = -reference_ + log1p(fallen) / delta_;
        shift_ = -expm1(-delta_ * (reference_ + mirrored_));
        lift_ = expm1(delta_ * (reference_ + renyi_));
    }

    // A constant in grad changes nothing; measured from where p is largest, no digits cancel.
    void find_origin() {
        V origins = V{} - std::numeric_limits<Real>::infinity();
        const V largest = Layout::spread(largest_);
        for (int64_t j = 0; j < count_; j += LANES<Real>) {
            const V direction = load<Real>(grad_ + j);
            origins = (load<Real>(p_ + j) == largest) & (direction > origins) ? direction : origins;
        }
        origin_ = Layout::largest(origins);
    }

    V direction_at(int64_t j) const { return load<Real>(grad_ + j) - Layout::spread(origin_); }
    // p e^{-delta U}, but for a factor of the row
    V ratio_at(int64_t j) const { return load<Real>(p_ + j) / load<Real>(growth_.get() + j); }
    // (e^{delta U} - 1)/delta, but for the same: e^{-delta U} = (1 - shift)/growth
    V spread_at(int64_t j) const { return (load<Real>(rise_.get() + j) + Layout::spread(shift_)) * inverse_; }
    // e^{delta t} - 1 = (1 + lift) growth - 1
    V tilt_at(int64_t j) const {
        const V rise = load<Real>(rise_.get() + j), lift = Layout::spread(lift_);
        return rise + lift + rise * lift;
    }

    Orders orders_;
    double delta_;
    Real inverse_;
    const Real* p_;
    Real* grad_;
    int64_t count_;
    std::unique_ptr<Real[]> level_, rise_, growth_;
    S largest_, reference_, renyi_, mirrored_, shift_, lift_, origin_, along_, escort_, stiffness_, heat_;
};

}  // namespace sharmix
