// Derivatives of the output of rows, in closed form of the output. sharmix/_mathematics/sensitivity.py explains the
// notation.
#pragma once

#include <array>

#include "equation.h"

namespace sharmix {

// The derivatives by q, r and temperature.
template <class S> struct ParameterGradients {
    S q = {}, r = {}, temperature = {};
};

constexpr int64_t GROUP = LANES<double>;  // rows of a group: a vector holds one number of each row
constexpr int64_t SUMMED = 1024;  // after this many numbers a sum goes on in double precision

// Sums of terms: add(j, parts) adds the terms of the vector at j to its parts, for all j from 0 to `count`.
template <class Layout, int Count, class Add> std::array<typename Layout::S, Count> sums_of(int64_t count, Add add) {
    using V = typename Layout::V;
    std::array<typename Layout::S, Count> sums = {};
    for (int64_t start = 0; start < count; start += SUMMED) {
        V parts[Count] = {};
        for (int64_t j = start; j < std::min(count, start + SUMMED); j += LANES<typename Layout::Real>) add(j, parts);
        for (int i = 0; i < Count; ++i) sums[i] += Layout::sum(Layout::widen(parts[i]));
    }
    return sums;
}

inline double ratio_slope(double x) { return expm1_ratio_slope(all(x), expm1(all(x)))[0]; }
inline Doubles ratio_slope(Doubles x) { return expm1_ratio_slope(x, expm1(x)); }

// The derivatives of the conjugate at fixed p [count] (envelope theorem). The Renyi entropy of p is known.
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

// Entries of p and of a gradient, and room for two numbers of each entry. `count` fills whole vectors.
template <class Real> struct Strip {
    const Real* p;
    Real *grad, *rise, *ratio;
    int64_t count;
};

// SeparateRows: each row of a group has a strip of its own. InterleavedRows: all rows share one strip, one row in each
// lane. In both layouts a vector of double holds one number of each row.
template <class Real_> struct SeparateRows {
    using Real = Real_;
    using Walk = OneRow<Real>;
    static Vector<Real> spread(const Doubles& values, int64_t row) { return Walk::spread(values[row]); }
    static void set(double* values, int64_t row, double value) { values[row] = value; }
};

struct InterleavedRows {
    using Real = double;
    using Walk = ManyRows<double>;
    static Doubles spread(Doubles values, int64_t) { return values; }
    static void set(double* values, int64_t, Doubles found) { store(values, found); }
};

// Overwrites grad with (dp/dz) grad on the supports of a group of rows, and computes (dp/dtheta).grad.
//
// Entries with p = 0 add nothing, but their grad must be finite.
template <class Layout> class PullBack {
    using Real = typename Layout::Real;
    using V = Vector<Real>;

  public:
    PullBack(const Strip<Real>* strips, int64_t count, const Orders& orders)
        : strips_(strips), count_(count), orders_(orders), delta_(orders.delta()) {
        find_origin();
        if (delta_ == 1) find_entropies<1>();
        else if (delta_ == 0.5) find_entropies<2>();
        else if (delta_ == 0.25) find_entropies<4>();
        else find_entropies<ANY>();
        const auto [along, escort, covariance] = sums<3>([](const Terms& row) {
            return [row](int64_t j, V* parts) {
                const V direction = row.direction(j), ratio = row.ratio(j), spread = ratio * row.spread(j);
                parts[0] += spread * direction;
                parts[1] += ratio * direction;
                parts[2] += spread * row.tilt(j) * row.inverse;
            };
        });
        along_ = along;
        escort_ = escort;
        const double gap = orders.r - orders.q;
        stiffness_ = 1 + gap * orders.q * covariance;
        heat_ = orders.temperature * exp(-gap * renyi_);
    }

    ParameterGradients<Doubles> parameters() const {
        const auto [weight, along_p, along_weighted, tilted, shannon, renyi_slope] = sums<6>([&](const Terms& row) {
            const V mirrored = row.of(mirrored_), renyi = row.of(renyi_);
            const Real delta = Real(delta_);
            return [=](int64_t j, V* parts) {
                const V probability = row.p(j), direction = row.direction(j), tilt = row.tilt(j);
                const V level = log(probability), u = level + mirrored, t = level + renyi;
                const V inverse_growth = row.ratio(j) / larger(probability, V{} + Format<V>::least);
                const V fall = -delta * row.spread(j) * inverse_growth;  // e^{-delta U} - 1
                const V weighted = probability * u * u * expm1_remainder(-delta * u, fall);
                parts[0] += weighted;
                parts[1] += probability * direction;
                parts[2] += weighted * direction;
                parts[3] += weighted * tilt * row.inverse;
                parts[4] -= probability * level;
                parts[5] -= probability * t * t * expm1_ratio_slope(delta * t, tilt);
            };
        });
        const double gap = orders_.r - orders_.q;
        const Doubles response = renyi_slope + orders_.q * tilted;
        const Doubles heating = (renyi_ - shannon - gap * response) / stiffness_;
        return {along_p * weight - along_weighted - heating * along_, along_ * renyi_ / stiffness_,
                -along_ / orders_.temperature / stiffness_};
    }

    void logits() {
        const double feedback = (orders_.r - orders_.q) * orders_.q;
        // 1/heat as the product of two equal factors: for a large r it is no float, and infinity times 0 would be NaN.
        constexpr double most = sizeof(Real) == 4 ? 1e30 : 1e154;
        const Doubles root = 1 / square_root(heat_), factor = where(root > most, all(most), root);
        const Doubles escort_mean = (1 - shift_) * escort_, escort_scale = (1 - shift_) * exp(delta_ * mirrored_) * factor;
        const Doubles spread_scale = feedback / stiffness_ * exp(delta_ * renyi_) * along_ * factor;
        for (int64_t i = 0; i < count_; ++i) {
            const Terms row(*this, i);
            const V mean = row.of(escort_mean), of_escort = row.of(escort_scale), of_spread = row.of(spread_scale);
            const V other = row.of(factor);
            for (int64_t j = 0; j < row.strip.count; j += LANES<Real>) {
                const V scaled = of_escort * (row.direction(j) - mean) - of_spread * row.spread(j);
                store(row.strip.grad + j, row.ratio(j) * other * scaled);
            }
        }
    }

  private:
    // The terms that the sums over a row share.
    struct Terms {
        Terms(const PullBack& group, int64_t index)
            : strip(group.strips_[index]), index(index), inverse(Real(1 / group.delta_)), origin(of(group.origin_)),
              shift(of(group.shift_)), lift(of(group.lift_)) {}

        V of(const Doubles& values) const { return Layout::spread(values, index); }
        V p(int64_t j) const { return load<Real>(strip.p + j); }
        V rise(int64_t j) const { return load<Real>(strip.rise + j); }
        V direction(int64_t j) const { return load<Real>(strip.grad + j) - origin; }
        // p e^{-delta U}, up to a factor of the row
        V ratio(int64_t j) const { return load<Real>(strip.ratio + j); }
        // (e^{delta U} - 1)/delta, up to the same factor: e^{-delta U} = (1 - shift)/growth
        V spread(int64_t j) const { return (rise(j) + shift) * inverse; }
        // e^{delta t} - 1 = (1 + lift) growth - 1
        V tilt(int64_t j) const { return rise(j) + lift + rise(j) * lift; }

        Strip<Real> strip;
        int64_t index;
        Real inverse;
        V origin, shift, lift;
    };

    // `Count` numbers of each row, which find(terms) returns.
    template <int Count, class Find> std::array<Doubles, Count> each_row(Find find) const {
        double lanes[Count][GROUP] = {};  // a lane of a vector in a register is slow to change
        for (int64_t row = 0; row < count_; ++row) {
            const auto found = find(Terms(*this, row));
            for (int i = 0; i < Count; ++i) Layout::set(lanes[i], row, found[i]);
        }
        std::array<Doubles, Count> all;
        for (int i = 0; i < Count; ++i) all[i] = load<double>(lanes[i]);
        return all;
    }

    // The sums of the terms that terms(row)(j, parts) adds, for each row.
    template <int Count, class TermsOf> std::array<Doubles, Count> sums(TermsOf terms) const {
        return each_row<Count>([&](const Terms& row) { return sums_of<typename Layout::Walk, Count>(row.strip.count, terms(row)); });
    }

    // The largest p and its grad. A constant added to grad changes no result. With this grad subtracted, no digits cancel.
    void find_origin() {
        const auto [largest, origin] = each_row<2>([&](const Terms& row) {
            V top = {}, origins = V{} - std::numeric_limits<Real>::infinity();
            for (int64_t j = 0; j < row.strip.count; j += LANES<Real>) top = larger(top, row.p(j));
            const auto largest = Layout::Walk::largest(top);
            const V level = Layout::Walk::spread(largest);
            for (int64_t j = 0; j < row.strip.count; j += LANES<Real>) {
                const V direction = load<Real>(row.strip.grad + j);
                origins = (row.p(j) == level) & (direction > origins) ? direction : origins;
            }
            return std::array{largest, Layout::Walk::largest(origins)};
        });
        largest_ = largest;
        origin_ = origin;
        reference_ = log(largest_);
    }

    // R_q and R_{2-q}, from growth = (p/largest)^delta, rise = growth - 1, and ratio = p/growth.
    // For Beta = 1/delta of 1, 2 or 4 roots replace powers. It saves a quarter of the map's backward pass at 64 x 1000 dense.
    template <int Beta> void find_entropies() {
        const auto [risen, fallen] = sums<2>([&](const Terms& row) {
            const V largest = row.of(largest_), unit = row.of(1 / largest_), reference = row.of(reference_);
            const Real delta = Real(delta_);
            return [=](int64_t j, V* parts) {
                const V p = row.p(j);
                V rise, ratio = largest;
                if constexpr (Beta == ANY) {
                    const auto [power_of_two, remainder] = exponential<V>(delta * (log(p) - reference));
                    rise = power_of_two * remainder + (power_of_two - 1);
                    ratio = p / (power_of_two + power_of_two * remainder);
                } else {
                    V growth = p * unit;
                    for (int rest = Beta; rest > 1; rest /= 2) growth = square_root(growth);
                    for (int factor = 1; factor < Beta; ++factor) ratio *= growth;
                    rise = growth - 1;
                    ratio = p > 0 ? ratio : V{};
                }
                parts[0] += p * rise;
                parts[1] -= ratio * rise;
                store(row.strip.rise + j, rise);
                store(row.strip.ratio + j, ratio);
            };
        });
        renyi_ = -reference_ - log1p(risen) / delta_;
        mirrored_ = -reference_ + log1p(fallen) / delta_;
        shift_ = -expm1(-delta_ * (reference_ + mirrored_));
        lift_ = expm1(delta_ * (reference_ + renyi_));
    }

    const Strip<Real>* strips_;
    int64_t count_;
    Orders orders_;
    double delta_;
    Doubles largest_ = {}, reference_ = {}, renyi_ = {}, mirrored_ = {}, shift_ = {}, lift_ = {};
    Doubles origin_ = {}, along_ = {}, escort_ = {}, stiffness_ = {}, heat_ = {};
};

}  // namespace sharmix
