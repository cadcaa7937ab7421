// exp, expm1, log and log1p of vectors, without branches.
#pragma once

#include <cmath>

#include "vector.h"

namespace sharmix {

template <class V> struct Format;

template <> struct Format<Doubles> {
    using Real = double;
    using Bits = DoubleBits;
    static constexpr int mantissa = 52;
    static constexpr uint64_t bias = 1023, root_half = 0x3fe6a09e667f3bcd;  // the bits of sqrt(1/2)
    static constexpr uint64_t round_bits = 0x4338000000000000;
    static constexpr double round = 0x1.8p52;  // adding it rounds to an integer, held in the lowest bits
    static constexpr double log2_high = 0x1.62e42feep-1, log2_low = 0x1.a39ef35793c76p-33;
    static constexpr double least_exponent = -708, least = 0x1p-1022;
    static constexpr int exponential_terms = 13, logarithm_terms = 10;  // the next terms are below a unit of rounding
};

template <> struct Format<Floats> {
    using Real = float;
    using Bits = FloatBits;
    static constexpr int mantissa = 23;
    static constexpr uint32_t bias = 127, root_half = 0x3f3504f3;
    static constexpr uint32_t round_bits = 0x4b400000;
    static constexpr float round = 0x1.8p23f;
    static constexpr float log2_high = 0x1.62e4p-1f, log2_low = 0x1.7f7d1cp-20f;
    static constexpr float least_exponent = -87, least = 0x1p-126f;
    static constexpr int exponential_terms = 7, logarithm_terms = 5;
};

constexpr int largest_power_of_two_below(int count) {
    int power = 1;
    while (2 * power < count) power *= 2;
    return power;
}

template <int Power, class V> INLINE V power_of(V x) {
    if constexpr (Power == 1) return x;
    else return power_of<Power / 2>(x * x);
}

// The sum of x^(n - First) Coefficient(n), n from First to Last, by halves (Estrin): shorter chains than Horner's rule.
template <double (*Coefficient)(int), int First, int Last, class V> INLINE V series(V x) {
    using Real = typename Format<V>::Real;
    if constexpr (First == Last) {
        return V{} + Real(Coefficient(First));
    } else {
        constexpr int half = largest_power_of_two_below(Last - First + 1);
        return series<Coefficient, First, First + half - 1>(x) +
               power_of<half>(x) * series<Coefficient, First + half, Last>(x);
    }
}

constexpr double inverse_factorial(int n) {
    double product = 1;
    for (int factor = 2; factor <= n; ++factor) product *= factor;
    return 1 / product;
}

template <class V> struct Exponential {
    V power_of_two, remainder;  // e^x = power_of_two (1 + remainder)
};

template <class V> INLINE Exponential<V> exponential(V x) {
    using F = Format<V>;
    x = x < F::least_exponent ? V{} + F::least_exponent : x;
    const V shifted = x * typename F::Real(1.4426950408889634) + F::round;
    const V turns = shifted - F::round;
    const V rest = (x - turns * F::log2_high) - turns * F::log2_low;
    const auto exponent = ((typename F::Bits)shifted + F::bias) << F::mantissa;
    return {(V)exponent, rest * series<inverse_factorial, 1, F::exponential_terms>(rest)};
}

// e^x for x < 80; a result below the smallest normal number becomes 0.
template <class V> INLINE V exp(V x) {
    const auto [power_of_two, remainder] = exponential(x);
    return x < Format<V>::least_exponent ? V{} : power_of_two + power_of_two * remainder;
}

// e^x - 1 to the last digits, for x < 80.
template <class V> INLINE V expm1(V x) {
    const auto [power_of_two, remainder] = exponential(x);
    return power_of_two * remainder + (power_of_two - 1);
}

constexpr double inverse_odd(int n) { return 1.0 / (2 * n + 1); }

// log(sum + lost), where `lost` is at most a unit of rounding of `sum`, a positive normal number.
template <class V> INLINE V logarithm(V sum, V lost) {
    using F = Format<V>;
    using Real = typename F::Real;
    const auto bits = (typename F::Bits)sum;
    const auto exponent = (bits - F::root_half + (F::bias << F::mantissa)) >> F::mantissa;
    const V turns = (V)(exponent + F::round_bits) - (F::round + Real(F::bias));
    const V fraction = ((V)(bits - ((exponent - F::bias) << F::mantissa)) - 1) + lost;
    const V s = fraction / (2 + fraction);
    const V rest = 2 * s * series<inverse_odd, 0, F::logarithm_terms>(s * s);
    return turns * F::log2_high + (rest + turns * F::log2_low);
}

// log x; an x below the smallest normal number counts as that number.
template <class V> INLINE V log(V x) {
    return logarithm(x > Format<V>::least ? x : V{} + Format<V>::least, V{});
}

// log(1 + u) to the last digits, for u > -1.
template <class V> INLINE V log1p(V u) {
    const V sum = 1 + u;
    return logarithm(sum, u - (sum - 1));
}

template <class V> inline V square_root(V x) {
    for (size_t lane = 0; lane < sizeof x / sizeof x[0]; ++lane) x[lane] = std::sqrt(x[lane]);
    return x;
}

template <class V> inline V near_zero_or(V x, V near, V far) { return (x < 0.5f) & (x > -0.5f) ? near : far; }

constexpr double remainder_coefficient(int n) { return inverse_factorial(n + 2); }

// (e^x - 1 - x)/x^2 without loss of digits at 0, from x and growth = e^x - 1.
template <class V> inline V expm1_remainder(V x, V growth) {
    const V near = series<remainder_coefficient, 0, Format<V>::exponential_terms + 1>(x);
    return near_zero_or(x, near, (growth - x) / (x * x));
}

constexpr double slope_coefficient(int n) { return (n + 1) * inverse_factorial(n + 2); }

// The derivative of (e^x - 1)/x by x, without loss of digits at 0.
template <class V> inline V expm1_ratio_slope(V x, V growth) {
    const V near = series<slope_coefficient, 0, Format<V>::exponential_terms + 1>(x);
    return near_zero_or(x, near, (growth + 1 - growth / x) / x);
}

// The same functions for one number, and for a condition on one number.

inline double log(double x) { return std::log(x); }
inline double log1p(double x) { return std::log1p(x); }
inline double exp(double x) { return std::exp(x); }
inline double expm1(double x) { return std::expm1(x); }
inline double where(bool condition, double yes, double no) { return condition ? yes : no; }
inline bool any(bool condition) { return condition; }

template <class Mask, class V> inline V where(Mask condition, V yes, V no) { return condition ? yes : no; }

template <class S> inline S absolute(S x) { return where(x < 0, -x, x); }
template <class S> inline S larger(S x, S y) { return where(x < y, y, x); }

// (e^x - 1)/x
template <class S> inline S expm1_ratio(S x) {
    const auto zero = x == 0;
    return where(zero, S{} + 1, expm1(x) / where(zero, S{} + 1, x));
}

}  // namespace sharmix
