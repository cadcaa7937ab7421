// Derivatives of the output of rows, in closed form of the output; the notation is that of sharmix/_sensitivity.py.
#pragma once


#include "solver.h"

namespace sharmix {

// By q, r and temperature.
template <class S> struct ParameterGradients {
    S q = {}, r = {}, temperature = {};
};

// What both kinds of derivatives need of p [count]; where it is 0 it adds nothing.
template <class Layout> struct Entropies {
    using Real = typename Layout::Real;
    using V = typename Layout::V;
    using S = typename Layout::S;

    Entropies(const Real* p, int64_t count, const Orders& orders)
        : p(p), count(count), delta(Real(orders.delta())), rise(new Real[count]), growth(new Real[count]) {
        V top = {};
        for (int64_t j = 0; j < count; j += LANES<Real>) top = at(j) > top ? at(j) : top;
        largest = Layout::largest(top);
        reference = log(largest);
        V risen = {}, fallen = {};
        for (int64_t j = 0; j < count; j += LANES<Real>) {
            const auto [power_of_two, remainder] = exponential<V>(delta * (log(at(j)) - Layout::spread(reference)));
            const V grown = power_of_two + power_of_two * remainder;
            const V rising = power_of_two * remainder + (power_of_two - 1);
            risen += at(j) * rising;
            fallen -= at(j) * rising / grown;
            store(rise.get() + j, rising);
            store(growth.get() + j, grown);
        }
        renyi = -reference - log1p(Layout::sum(risen)) / orders.delta();
        mirrored = -reference + log1p(Layout::sum(fallen)) / orders.delta();
    }

    V at(int64_t j) const { return load<Real>(p + j); }

    // dR_q/dq
    S renyi_slope() const {
        V slope = {};
        for (int64_t j = 0; j < count; j += LANES<Real>) {
            const V t = log(at(j)) + Layout::spread(renyi);
            slope -= at(j) * t * t * expm1_ratio_slope<V>(delta * t);
        }
        return Layout::sum(slope);
    }

    const Real* p;
    int64_t count;
    Real delta;
    S largest, reference;
    std::unique_ptr<Real[]> rise, growth;  // e^x - 1 and e^x for x = (q-1) log(p/largest p)
    S renyi, mirrored;                     // R_q and R_{2-q}
};

inline double ratio_slope(double x) { return expm1_ratio_slope(all(x))[0]; }
inline Doubles ratio_slope(Doubles x) { return expm1_ratio_slope(x); }

// Of the conjugate, at fixed p (envelope theorem).
template <class Layout>
auto conjugate_gradients(const typename Layout::Real* p, int64_t count, const Orders& orders) {
    using S = typename Layout::S;
    const Entropies<Layout> at(p, count, orders);
    const S heat = (1 - orders.r) * at.renyi, entropy = at.renyi * expm1_ratio(heat);
    const S slope = exp(heat) * at.renyi_slope();
    return ParameterGradients<S>{orders.temperature * (slope - entropy / orders.q) / orders.q,
                                 -orders.temperature / orders.q * at.renyi * at.renyi * ratio_slope(heat),
                                 entropy / orders.q};
}

// grad -> (dp/dz) grad on a support, and (dp/dtheta).grad where it is asked for.
//
// grad [count] is overwritten; where p is 0 it must be finite.
template <class Layout>
void pull_back(const typename Layout::Real* p, typename Layout::Real* grad, int64_t count, const Orders& orders,
               ParameterGradients<typename Layout::S>* parameters) {
    using Real = typename Layout::Real;
    using V = typename Layout::V;
    using S = typename Layout::S;
    const Entropies<Layout> at(p, count, orders);
    const double delta = orders.delta();
    const Real inverse = Real(1 / delta);
    // e^{-delta U} = (1 - shift)/growth and e^{delta t} = (1 + lift) growth
    const S shift_of_row = -expm1(-delta * (at.reference + at.mirrored)), lift_of_row = expm1(delta * (at.reference + at.renyi));
    const V shift = Layout::spread(shift_of_row), lift = Layout::spread(lift_of_row);
    // A constant in grad changes nothing; measured from where p is largest, no digits cancel.
    V origins = V{} - std::numeric_limits<Real>::infinity();
    for (int64_t j = 0; j < count; j += LANES<Real>) {
        const V direction = load<Real>(grad + j);
        origins = (at.at(j) == Layout::spread(at.largest)) & (direction > origins) ? direction : origins;
    }
    const V origin = Layout::spread(Layout::largest(origins));
    V along_sum = {}, escort_sum = {}, covariance_sum = {};
    for (int64_t j = 0; j < count; j += LANES<Real>) {
        const V direction = load<Real>(grad + j) - origin, rise = load<Real>(at.rise.get() + j);
        const V ratio = at.at(j) / load<Real>(at.growth.get() + j);
        const V spread = ratio * ((rise + shift) * inverse);
        along_sum += spread * direction;
        escort_sum += ratio * direction;
        covariance_sum += spread * ((rise + lift + rise * lift) * inverse);
    }
    const S along = Layout::sum(along_sum);
    const double gap = orders.r - orders.q, feedback = gap * orders.q;
    const S stiffness = 1 + feedback * Layout::sum(covariance_sum);
    const S heat = orders.temperature * exp(-gap * at.renyi);
    if (parameters) {
        V weight = {}, along_p = {}, along_weighted = {}, tilted = {}, shannon = {};
        for (int64_t j = 0; j < count; j += LANES<Real>) {
            const V probability = at.at(j), direction = load<Real>(grad + j) - origin;
            const V rise = load<Real>(at.rise.get() + j), logarithm = log(probability);
            const V level = logarithm + Layout::spread(at.mirrored);
            const V weighted = probability * level * level * expm1_remainder<V>(-at.delta * level);
            weight += weighted;
            along_p += probability * direction;
            along_weighted += weighted * direction;
            tilted += weighted * ((rise + lift + rise * lift) * inverse);
            shannon -= probability * logarithm;
        }
        const S response = at.renyi_slope() + orders.q * Layout::sum(tilted);
        const S heating = (at.renyi - Layout::sum(shannon) - gap * response) / stiffness;
        parameters->q = Layout::sum(along_p) * Layout::sum(weight) - Layout::sum(along_weighted) - heating * along;
        parameters->r = along * at.renyi / stiffness;
        parameters->temperature = -along / orders.temperature / stiffness;
    }
    const V escort_mean = Layout::spread((1 - shift_of_row) * Layout::sum(escort_sum));
    const V escort_scale = Layout::spread((1 - shift_of_row) * exp(delta * at.mirrored) / heat);
    const V spread_scale = Layout::spread(feedback / stiffness * exp(delta * at.renyi) * along / heat) * inverse;
    for (int64_t j = 0; j < count; j += LANES<Real>) {
        const V direction = load<Real>(grad + j) - origin, rise = load<Real>(at.rise.get() + j);
        const V ratio = at.at(j) / load<Real>(at.growth.get() + j);
        store(grad + j, ratio * (escort_scale * (direction - escort_mean) - spread_scale * (rise + shift)));
    }
}

}  // namespace sharmix
