// Derivatives of one row's output, in closed form of the output; the notation is that of sharmix/_sensitivity.py.
#pragma once

#include "solver.h"

namespace sharmix {

// By q, r and temperature.
struct ParameterGradients {
    double q = 0, r = 0, temperature = 0;
};

// What both kinds of derivatives need of p [count], probabilities padded with 0 to whole vectors.
template <class Real> struct Entropies {
    using V = Vector<Real>;

    Entropies(const Real* p, int64_t count, const Orders& orders)
        : p(p), count(count), delta(Real(orders.delta())), rise(new Real[count]), growth(new Real[count]) {
        V top = {};
        for (int64_t j = 0; j < count; j += LANES<Real>) top = at(j) > top ? at(j) : top;
        largest = sharmix::largest<Real>(top);
        reference = std::log(largest);
        V risen = {}, fallen = {};
        for (int64_t j = 0; j < count; j += LANES<Real>) {
            const auto [power_of_two, remainder] = exponential<V>(delta * (log(at(j)) - reference));
            const V grown = power_of_two + power_of_two * remainder;
            const V rising = power_of_two * remainder + (power_of_two - 1);
            risen += at(j) * rising;
            fallen -= at(j) * rising / grown;
            store(rise.get() + j, rising);
            store(growth.get() + j, grown);
        }
        renyi = -reference - std::log1p(double(sum<Real>(risen))) / orders.delta();
        mirrored = -reference + std::log1p(double(sum<Real>(fallen))) / orders.delta();
    }

    V at(int64_t j) const { return load<Real>(p + j); }

    // dR_q/dq
    double renyi_slope() const {
        V slope = {};
        for (int64_t j = 0; j < count; j += LANES<Real>) {
            const V t = log(at(j)) + Real(renyi);
            slope -= at(j) * t * t * expm1_ratio_slope<V>(delta * t);
        }
        return sum<Real>(slope);
    }

    const Real* p;
    int64_t count;
    Real delta, largest, reference;
    std::unique_ptr<Real[]> rise, growth;  // e^x - 1 and e^x for x = (q-1) log(p/largest p)
    double renyi, mirrored;                // R_q and R_{2-q}
};

// Of the conjugate, at fixed p (envelope theorem).
template <class Real> ParameterGradients conjugate_gradients(const Real* p, int64_t count, const Orders& orders) {
    const Entropies<Real> at(p, count, orders);
    const double heat = (1 - orders.r) * at.renyi, entropy = at.renyi * expm1_ratio(heat);
    const double slope = std::exp(heat) * at.renyi_slope(), ratio_slope = expm1_ratio_slope(all(heat))[0];
    return {orders.temperature * (slope - entropy / orders.q) / orders.q,
            -orders.temperature / orders.q * at.renyi * at.renyi * ratio_slope, entropy / orders.q};
}

// grad -> (dp/dz) grad on a support, and (dp/dtheta).grad where it is asked for.
//
// grad [count] is overwritten; its padding must be finite.
template <class Real>
void pull_back(const Real* p, Real* grad, int64_t count, const Orders& orders, ParameterGradients* parameters) {
    using V = Vector<Real>;
    const Entropies<Real> at(p, count, orders);
    const double delta = orders.delta();
    const Real inverse = Real(1 / delta);
    // e^{-delta U} = (1 - shift)/growth and e^{delta t} = (1 + lift) growth
    const Real shift = Real(-std::expm1(-delta * (at.reference + at.mirrored)));
    const Real lift = Real(std::expm1(delta * (at.reference + at.renyi)));
    // A constant in grad changes nothing; measured from where p is largest, no digits cancel.
    const Real origin = grad[std::find(p, p + count, at.largest) - p];
    V along_sum = {}, escort_sum = {}, covariance_sum = {};
    for (int64_t j = 0; j < count; j += LANES<Real>) {
        const V direction = load<Real>(grad + j) - origin, rise = load<Real>(at.rise.get() + j);
        const V ratio = at.at(j) / load<Real>(at.growth.get() + j);
        const V spread = ratio * ((rise + shift) * inverse);
        along_sum += spread * direction;
        escort_sum += ratio * direction;
        covariance_sum += spread * ((rise + lift + rise * lift) * inverse);
    }
    const double along = sum<Real>(along_sum);
    const double gap = orders.r - orders.q, feedback = gap * orders.q;
    const double stiffness = 1 + feedback * sum<Real>(covariance_sum);
    const double heat = orders.temperature * std::exp(-gap * at.renyi);
    if (parameters) {
        V weight = {}, along_p = {}, along_weighted = {}, tilted = {}, shannon = {};
        for (int64_t j = 0; j < count; j += LANES<Real>) {
            const V probability = at.at(j), direction = load<Real>(grad + j) - origin;
            const V rise = load<Real>(at.rise.get() + j), logarithm = log(probability);
            const V level = logarithm + Real(at.mirrored);
            const V weighted = probability * level * level * expm1_remainder<V>(-at.delta * level);
            weight += weighted;
            along_p += probability * direction;
            along_weighted += weighted * direction;
            tilted += weighted * ((rise + lift + rise * lift) * inverse);
            shannon -= probability * logarithm;
        }
        const double response = at.renyi_slope() + orders.q * sum<Real>(tilted);
        const double heating = (at.renyi - sum<Real>(shannon) - gap * response) / stiffness;
        parameters->q = double(sum<Real>(along_p)) * sum<Real>(weight) - sum<Real>(along_weighted) - heating * along;
        parameters->r = along * at.renyi / stiffness;
        parameters->temperature = -along / orders.temperature / stiffness;
    }
    const Real escort_mean = (1 - shift) * sum<Real>(escort_sum);
    const Real escort_scale = Real((1 - shift) * std::exp(delta * at.mirrored) / heat);
    const Real spread_scale = Real(feedback / stiffness * std::exp(delta * at.renyi) * along / heat) * inverse;
    for (int64_t j = 0; j < count; j += LANES<Real>) {
        const V direction = load<Real>(grad + j) - origin, rise = load<Real>(at.rise.get() + j);
        const V ratio = at.at(j) / load<Real>(at.growth.get() + j);
        store(grad + j, ratio * (escort_scale * (direction - escort_mean) - spread_scale * (rise + shift)));
    }
}

}  // namespace sharmix
