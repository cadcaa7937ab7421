// The one equation behind the map, for one row; the notation is that of sharmix/_mathematics/equation.py.
#pragma once

#include <type_traits>

#include "elementary.h"
#include "kernel.h"

namespace sharmix {

constexpr int ANY_INTEGER = -1, ANY = -2;

// beta = 1/(q-1), and beta - 1 where that is an integer up to a tolerance.
struct Shape {
    Shape() = default;

    Shape(double delta, double tolerance) : beta(1 / delta) {
        const double nearest = std::round(std::min(beta, 1000.0));
        if (std::abs(beta - nearest) <= tolerance) integer = int(nearest) - 1;
    }

    double beta = 0;
    int integer = ANY;
};

template <class T> Shape shape_of(const Orders& orders) {
    return Shape(orders.delta(), sizeof(T) == 4 ? 1e-9 : 0);  // where p is rounded to float, nearly an integer is one
}

// base^exponent for an integer exponent >= 0, which may be known to the compiler.
template <int Exponent, class V> INLINE V power(V base, int integer) {
    V square = base, result = V{} + 1;
    for (int rest = Exponent == ANY_INTEGER ? integer : Exponent; rest; rest >>= 1) {
        if (rest & 1) result *= square;
        square *= square;
    }
    return result;
}

constexpr int64_t BLOCK = 256;  // numbers whose logarithms the first-level cache holds

// weigh(j, u, (1 + u)_+^(beta-1)) for the vectors of u = coordinate(j), j from 0 to `count` by `step`. Logarithms and
// exponentials take turns: in one loop, they would not leave each other the registers for their coefficients.
template <class V, int Exponent, class Coordinate, class Weigh>
INLINE void for_powers(int64_t count, int64_t step, const Shape& shape, Coordinate coordinate, Weigh weigh) {
    using Real = typename Format<V>::Real;
    constexpr int64_t lanes = LANES<Real>;
    if constexpr (Exponent == ANY) {
        Real logarithms[BLOCK];
        for (int64_t start = 0; start < count; start += step / lanes * BLOCK) {
            const int64_t stop = std::min(count, start + step / lanes * BLOCK);
            Real* own = logarithms;
            for (int64_t j = start; j < stop; j += step, own += lanes) {
                const V u = coordinate(j);
                store(own, log1p(u > -1 ? u : V{}));
            }
            own = logarithms;
            for (int64_t j = start; j < stop; j += step, own += lanes) {
                const V u = coordinate(j), power_of_w = exp(Real(shape.beta - 1) * load<Real>(own));
                weigh(j, u > -1 ? u : V{} - 1, u > -1 ? power_of_w : V{});
            }
        }
    } else {
        for (int64_t j = 0; j < count; j += step) {
            const V u = coordinate(j);
            weigh(j, u > -1 ? u : V{} - 1, u > -1 ? power<Exponent>(1 + (u > -1 ? u : V{}), shape.integer) : V{});
        }
    }
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

// How a matrix is walked through: many classes of one row at a time, or one class of many rows. What is left of a row, S,
// is then one number, or one in each lane.
template <class Real_> struct OneRow {
    using Real = Real_;
    using V = Vector<Real>;
    using S = double;
    static V spread(S value) { return V{} + Real(value); }
    static S sum(V vector) { return sharmix::sum<Real>(vector); }
    static S largest(V vector) { return sharmix::largest<Real>(vector); }
};

struct ManyRows {
    using Real = double;
    using V = Doubles;
    using S = Doubles;
    static V spread(S value) { return value; }
    static S sum(V vector) { return vector; }
    static S largest(V vector) { return vector; }
};

// At one y, the sums of w^beta, of w^(beta-1) u, of w^(beta-1) u^2 and of w^beta u, where w = (1 + u)_+.
template <class S> struct Sums {
    S total, base_u, base_uu, power_u;
};

// The sums for u = scale (z - maximum) unit over `count` logits z, or over every `stride`-th vector of logits. Where
// `base` is not null, w^(beta-1) of each logit is written to it.
template <class Layout, class T, class S>
Sums<S> sums_over(const T* values, int64_t count, S maximum, double unit, S scale, const Shape& shape, double* base,
                  int64_t stride = 1) {
    using V = typename Layout::V;
    using Real = typename Layout::Real;
    return with_exponent(shape.integer, [&](auto exponent) -> Sums<S> {
        const V top = Layout::spread(maximum), factor = Layout::spread(scale);
        const Real inverse = Real(unit);
        V total = {}, base_u = {}, base_uu = {}, power_u = {};
        const auto coordinate = [&](int64_t j) { return (load<Real>(values + j) - top) * inverse * factor; };
        for_powers<V, exponent>(count, stride * LANES<Real>, shape, coordinate, [&](int64_t j, V u, V own) {
            const V part = own * u, weighted = own + part;
            total += weighted;
            base_u += part;
            base_uu += part * u;
            power_u += weighted * u;
            if constexpr (sizeof(Real) == 8)
                if (base) store(base + j, own);
        });
        return {Layout::sum(total), Layout::sum(base_u), Layout::sum(base_uu), Layout::sum(power_u)};
    });
}

// What one y gives.
template <class S> struct Point {
    Point(const Orders& orders, S y, const Sums<S>& sums) : y(y), sums(sums) {
        const double delta = orders.delta(), gap = orders.r - orders.q;
        mean = sums.power_u / sums.total;
        const S log_total = log(sums.total);
        renyi = log_total - log1p(mean) / delta;
        residual = y + delta * log_total + gap * renyi;
        const S total_slope = -sums.base_u / sums.total;
        const S mean_slope = -sums.base_uu / sums.total - mean * (total_slope + delta);
        renyi_slope = (total_slope - mean_slope / (delta * (mean + 1))) / delta;
        slope = gap * renyi_slope + total_slope + 1;
    }

    // Newton's step for g = 0 in y; far from the root that for e^g = 1 in s = e^y, which does not overshoot.
    S step() const {
        const S in_y = -residual / slope;
        const auto far = absolute(in_y) > 1;
        if (!any(far)) return in_y;
        const S in_s = expm1(-residual) / slope;
        return where(far & (in_s > -1), log1p(larger(in_s, S{} - 0.999)), in_y);
    }

    // Of the objective in units of the temperature, p.x and H/q.
    S linear(const Orders& orders) const { return mean / orders.delta() * exp(y); }
    S scaled_entropy(const Orders& orders) const { return renyi * expm1_ratio((1 - orders.r) * renyi) / orders.q; }

    S y, mean, renyi, renyi_slope, residual, slope;  // slopes are by y
    Sums<S> sums;
};

constexpr double LEAST_STEP = 1e-15;
constexpr int STEPS_TRUSTED = 20;  // inside the bracket; bisection then settles what is left
constexpr int MOST_STEPS = 100;

// The point in [low, high], with g(low) < 0 < g(high), whose next step is at most `last_step`.
template <class S, class At> inline Point<S> newton(At at, S y, S low, S high, double last_step) {
    for (int steps = 0;; ++steps) {
        const Point<S> point = at(y);
        const S step = point.step();
        const auto goes_on = absolute(step) > last_step;
        if (!any(goes_on) || steps == MOST_STEPS) return point;
        const auto below = point.residual < 0;
        low = where(below, y, low);
        high = where(below, high, y);
        const auto trusted = (y + step >= low) & (y + step <= high) & (S{} + steps < STEPS_TRUSTED);
        y = where(goes_on, where(trusted, y + step, (low + high) / 2), y);
    }
}

}  // namespace sharmix
