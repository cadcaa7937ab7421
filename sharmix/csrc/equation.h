// The one equation behind the map, for one row; the notation is that of sharmix/_equation.py.
#pragma once

#include <algorithm>
#include <type_traits>

#include "elementary.h"

namespace sharmix {

constexpr int ANY_INTEGER = -1, ANY = -2;

struct Orders {
    double q, r, temperature;
    double delta() const { return std::max(q - 1, 1e-30); }
    bool operator==(const Orders& other) const { return q == other.q && r == other.r && temperature == other.temperature; }
};

// beta = 1/(q-1), and beta - 1 where that is an integer. Where p is rounded to float, nearly one is one.
template <class T> struct Shape {
    Shape() = default;

    explicit Shape(double delta) : beta(1 / delta) {
        const double nearest = std::round(std::min(beta, 1000.0));
        if (std::abs(beta - nearest) <= (sizeof(T) == 4 ? 1e-9 : 0)) integer = int(nearest) - 1;
    }

    double beta = 0;
    int integer = ANY;
};

// (1 + u)^exponent for an exponent >= 0: known to the compiler, an integer, or any.
template <int Exponent, class V> inline V power(V u, int integer, typename Format<V>::Real exponent) {
    if constexpr (Exponent == ANY) return exp(exponent * log1p(u));
    V square = 1 + u, result = V{} + 1;
    for (int rest = Exponent == ANY_INTEGER ? integer : Exponent; rest; rest >>= 1) {
        if (rest & 1) result *= square;
        square *= square;
    }
    return result;
}

// body(Exponent) for the exponents worth a loop of their own.
template <class Body> inline auto with_exponent(int integer, Body body) {
    switch (integer) {
        case ANY: return body(std::integral_constant<int, ANY>());
        case 0: return body(std::integral_constant<int, 0>());
        case 1: return body(std::integral_constant<int, 1>());
        case 3: return body(std::integral_constant<int, 3>());
        default: return body(std::integral_constant<int, ANY_INTEGER>());
    }
}

// Over a row at one y, the sums of w^beta, of w^(beta-1) u, of w^(beta-1) u^2 and of w^beta u, where w = (1 + u)_+.
struct Sums {
    double total, base_u, base_uu, power_u;
};

inline double expm1_ratio(double x) { return std::abs(x) < 1e-5 ? 1 + x / 2 + x * x / 6 : std::expm1(x) / x; }

// What one y gives.
struct Point {
    Point(const Orders& orders, double y, const Sums& sums) : y(y), sums(sums) {
        const double delta = orders.delta(), gap = orders.r - orders.q;
        mean = sums.power_u / sums.total;
        const double log_total = std::log(sums.total);
        renyi = log_total - std::log1p(mean) / delta;
        residual = y + delta * log_total + gap * renyi;
        const double total_slope = -sums.base_u / sums.total;
        const double mean_slope = -sums.base_uu / sums.total - mean * (total_slope + delta);
        slope = gap * (total_slope - mean_slope / (delta * (mean + 1))) / delta + total_slope + 1;
    }

    // Newton's step for g = 0 in y; far from the root that for e^g = 1 in s = e^y, which does not overshoot.
    double step() const {
        const double in_y = -residual / slope;
        if (std::abs(in_y) <= 1) return in_y;
        const double in_s = std::expm1(-residual) / slope;
        return in_s > -1 ? std::log1p(in_s) : in_y;
    }

    // Of the objective in units of the temperature, p.x and H/q.
    double linear(const Orders& orders) const { return mean / orders.delta() * std::exp(y); }
    double scaled_entropy(const Orders& orders) const {
        return renyi * expm1_ratio((1 - orders.r) * renyi) / orders.q;
    }

    double y, mean, renyi, residual, slope;
    Sums sums;
};

constexpr double LEAST_STEP = 1e-15;
constexpr int STEPS_TRUSTED = 20;  // inside the bracket; bisection then settles what is left
constexpr int MOST_STEPS = 100;

// The point in [low, high], with g(low) < 0 < g(high), whose next step is at most `last_step`.
template <class At> inline Point newton(At at, double y, double low, double high, double last_step) {
    for (int steps = 0;; ++steps) {
        const Point point = at(y);
        double step = point.step();
        if (!(std::abs(step) > last_step) || steps == MOST_STEPS) return point;
        (point.residual < 0 ? low : high) = y;
        if (!(y + step >= low && y + step <= high && steps < STEPS_TRUSTED)) step = (low + high) / 2 - y;
        y += step;
    }
}

}  // namespace sharmix
