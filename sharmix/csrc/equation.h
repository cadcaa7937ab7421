// The equation behind the map, for one row, or for several rows, one in each lane.
// sharmix/_mathematics/equation.py explains the notation.
#pragma once

#include <type_traits>

#include "elementary.h"
#include "kernel.h"

namespace sharmix {

constexpr int ANY_INTEGER = -1, ANY = -2;

// beta = 1/(q-1), and the integer beta - 1 if beta is an integer up to a tolerance.
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
    return Shape(orders.delta(), sizeof(T) == 4 ? 1e-9 : 0);  // p is rounded to float, so a beta near an integer counts as one
}

// base^exponent for an integer exponent >= 0. The compiler knows the exponent, unless it is ANY_INTEGER.
template <int Exponent, class V> INLINE V power(V base, int integer) {
    V square = base, result = V{} + 1;
    for (int rest = Exponent == ANY_INTEGER ? integer : Exponent; rest; rest >>= 1) {
        if (rest & 1) result *= square;
        square *= square;
    }
    return result;
}

// Logarithms and exponentials take turns, block by block: in one loop, the coefficients of both do not fit the registers.
// It saves a sixth of the map's forward pass at 64 x 100 for q = 1.3.
constexpr int64_t BLOCK = 256;  // logarithms that the first-level cache holds
constexpr int64_t SUMMED_TOGETHER = 16 * LANES<float>;  // numbers, after which a sum goes on in double precision

// A line through u of the logits. It keeps the digits of a tiny u, as for q near 1.
template <class V> struct LineOfU {
    V maximum, unit, scale;
    static constexpr int outside = -1;
    INLINE V operator()(V logit) const { return (logit - maximum) * unit * scale; }
    static V u(V x) { return x; }
    static V w(V x) { return 1 + x; }
    static V log_w(V x) { return log1p(x); }
};

// A line through w = 1 + u of the logits. It keeps the digits of a tiny w, which a rounded 1 + u would lose. Many classes
// have a tiny w when they share the probability that one class leaves.
template <class V> struct LineOfW {
    V origin, slope, at_origin;
    static constexpr int outside = 0;
    INLINE V operator()(V logit) const { return (logit - origin) * slope + at_origin; }
    static V u(V x) { return x - 1; }
    static V w(V x) { return x; }
    static V log_w(V x) { return log(x); }
};

#ifdef __FMA__
constexpr bool HAS_FMA = true;  // w is computed from a logit with one rounding
#else
constexpr bool HAS_FMA = false;
#endif

constexpr double SMOOTH = 2;  // the least beta for single precision; with a smaller beta a class joins with a kink
constexpr double FLAT = 10;   // the largest beta for single precision; with a larger one powers of a rounded w lose digits

// A line of w in the precision of the logits. Its constants are rounded, but the difference from the wanted line is known
// exactly: w of the maximum is 1 + lift instead of 1, and all w are scaled by 1 + lift. If the maximum is far from 0,
// logits are measured from the maximum; else the constant contains its multiple. Neither rounds.
// It saves a quarter of the map's forward pass at 64 x 1000 dense.
template <class T> struct RoundedLine {
    RoundedLine(double maximum, double unit, double wanted, double beta) {
        const double slope = T(wanted * unit), origin = std::abs(maximum * slope) >= 2 ? maximum : 0;
        const double at_origin = T(1 - (maximum - origin) * slope);
        line = {all(T(origin)), all(T(slope)), all(T(at_origin))};
        lift = at_origin + (maximum - origin) * slope - 1;
        scale = slope / unit / (1 + lift);
        stretch = std::log(scale / wanted);
        lifted = std::exp(beta * std::log1p(lift));
    }

    LineOfW<Vector<T>> line;
    double lift;     // w of the maximum is 1 + lift
    double scale;    // of u
    double stretch;  // the logarithm of scale/wanted
    double lifted;   // every w^beta is this factor too large
};

// Calls weigh(j, u, w, w^(beta-1)), with w = (1 + u)_+, for the vectors logits(j), j from 0 to `count` in steps of `step`.
template <class V, int Exponent, class Line, class Logits, class Weigh>
INLINE void for_powers(int64_t count, int64_t step, const Shape& shape, const Line& line, Logits logits, Weigh weigh) {
    using Real = typename Format<V>::Real;
    constexpr int64_t lanes = LANES<Real>;
    const V outside = all(Real(Line::outside));
    if constexpr (Exponent == ANY) {
        Real logarithms[BLOCK];
        for (int64_t start = 0; start < count; start += step / lanes * BLOCK) {
            const int64_t stop = std::min(count, start + step / lanes * BLOCK);
            Real* own = logarithms;
            for (int64_t j = start; j < stop; j += step, own += lanes) {
                const V x = line(logits(j));
                store(own, Line::log_w(x > outside ? x : outside + (Line::outside ? 1 : 0)));
            }
            own = logarithms;
            for (int64_t j = start; j < stop; j += step, own += lanes) {
                const V x = line(logits(j)), inside = x > outside ? x : outside;
                const V power_of_w = exp(Real(shape.beta - 1) * load<Real>(own));
                weigh(j, Line::u(inside), Line::w(inside), x > outside ? power_of_w : V{});
            }
        }
    } else {
        for (int64_t j = 0; j < count; j += step) {
            const V x = line(logits(j)), inside = x > outside ? x : outside;
            const V w = Line::w(inside);
            weigh(j, Line::u(inside), w, x > outside ? power<Exponent>(w, shape.integer) : V{});
        }
    }
}

// Calls body(Exponent). Frequent exponents have a loop of their own, where powers are products. It saves a third of the map's
// forward pass at 64 x 100.
template <class Body> inline auto with_exponent(int integer, Body body) {
    switch (integer) {
        case ANY: return body(std::integral_constant<int, ANY>());
        case 0: return body(std::integral_constant<int, 0>());
        case 1: return body(std::integral_constant<int, 1>());
        case 3: return body(std::integral_constant<int, 3>());
        default: return body(std::integral_constant<int, ANY_INTEGER>());
    }
}

// A layout says what a vector holds: many classes of one row, or one class of many rows. S is the type of a number of a
// row: one number, or one in each lane. Wide is the type of long sums.
template <class Real_> struct OneRow {
    using Real = Real_;
    using V = Vector<Real>;
    using S = double;
    using Wide = Doubles;
    static V spread(S value) { return V{} + Real(value); }
    static Wide widen(V vector) { return doubles(vector); }
    static S sum(Wide vector) { return sharmix::sum<double>(vector); }
    static S largest(V vector) { return sharmix::largest<Real>(vector); }
};

template <class Real_> struct ManyRows {
    using Real = Real_;
    using V = Vector<Real>;
    using S = V;
    using Wide = V;
    static V spread(S value) { return value; }
    static Wide widen(V vector) { return vector; }
    static S sum(Wide vector) { return vector; }
    static S largest(V vector) { return vector; }
};

// At one y, the sums of w^beta, of w^(beta-1) u, of w^(beta-1) u^2 and of w^beta u, where w = (1 + u)_+.
template <class S> struct Sums {
    S total, base_u, base_uu, power_u;
};

// The sums over `count` logits, or over every `stride`-th vector of logits. Where `base` is not null, w^(beta-1) of each
// logit is written to it.
template <class Layout, class T, class Line, class Base = T>
Sums<typename Layout::S> sums_over(const T* values, int64_t count, const Line& line, const Shape& shape, Base* base = nullptr,
                                   int64_t stride = 1) {
    using V = typename Layout::V;
    using Real = typename Layout::Real;
    return with_exponent(shape.integer, [&](auto exponent) -> Sums<typename Layout::S> {
        typename Layout::Wide total = {}, base_u = {}, base_uu = {}, power_u = {};
        for (int64_t start = 0; start < count; start += stride * SUMMED_TOGETHER) {
            V parts[4] = {};
            const auto logits = [&](int64_t j) { return load<Real>(values + start + j); };
            const auto weigh = [&](int64_t j, V u, V w, V own) {
                const V part = own * u, weighted = own * w;
                parts[0] += weighted;
                parts[1] += part;
                parts[2] += part * u;
                parts[3] += weighted * u;
                if constexpr (sizeof(Base) <= sizeof(Real))
                    if (base) store_as<Base>(base + start + j, own);
            };
            for_powers<V, exponent>(std::min(count - start, stride * SUMMED_TOGETHER), stride * LANES<Real>, shape, line, logits,
                                    weigh);
            total += Layout::widen(parts[0]);
            base_u += Layout::widen(parts[1]);
            base_uu += Layout::widen(parts[2]);
            power_u += Layout::widen(parts[3]);
        }
        return {Layout::sum(total), Layout::sum(base_u), Layout::sum(base_uu), Layout::sum(power_u)};
    });
}

constexpr double MOST_SPREAD = 45;  // a last step of 1e-5 leaves an error of (45 x 1e-5)^2/2 = 1e-7

// The sums and the Newton step at one y.
template <class S> struct Point {
    using Real = RealOf<S>;

    Point(const Orders& orders, S y, const Sums<S>& sums) : y(y), sums(sums) {
        const Real delta = Real(orders.delta()), gap = Real(orders.r - orders.q);
        mean = sums.power_u / sums.total;
        const S log_total = log(sums.total);
        renyi = log_total - log1p(mean) / delta;
        residual = y + delta * log_total + gap * renyi;
        const S total_slope = -sums.base_u / sums.total;
        spread = absolute(total_slope) / delta;
        const S mean_slope = -sums.base_uu / sums.total - mean * (total_slope + delta);
        renyi_slope = (total_slope - mean_slope / (delta * (mean + 1))) / delta;
        slope = gap * renyi_slope + total_slope + 1;
    }

    // Newton's step for g = 0 in y. Far from the root it is Newton's step for e^g = 1 in s = e^y, which does not overshoot.
    S step() const {
        const S in_y = -residual / slope;
        const auto far = absolute(in_y) > 1;
        if (!any(far)) return in_y;
        const S in_s = expm1(-residual) / slope;
        return where(far & (in_s > -1), log1p(larger(in_s, S{} - Real(0.999))), in_y);
    }

    // The two parts of the objective in units of the temperature: p.x and H/q.
    S linear(const Orders& orders) const { return mean / orders.delta() * exp(y); }
    S scaled_entropy(const Orders& orders) const { return renyi * expm1_ratio((1 - orders.r) * renyi) / orders.q; }

    S objective(const Orders& orders) const { return linear(orders) + scaled_entropy(orders); }

    // The size of the step as p sees it. A first-order correction leaves an error that grows with beta u/w.
    S reach() const { return absolute(step()) * larger(spread / Real(MOST_SPREAD), S{} + 1); }

    S y, mean, spread, renyi, renyi_slope, residual, slope;  // slopes are by y; the spread is the spread of log w^beta
    Sums<S> sums;
};

constexpr double LEAST_STEP = 1e-15;  // relative to the bracket: y is rounded
constexpr int STEPS_TRUSTED = 20;  // Newton's steps inside the bracket; then comes bisection
constexpr int MOST_STEPS = 100;

// The point in [low, high], with g(low) < 0 < g(high), whose next step reaches at most as far as `last_step`.
template <class S, class At> inline Point<S> newton(At at, S y, S low, S high, RealOf<S> last_step) {
    for (int steps = 0;; ++steps) {
        const Point<S> point = at(y);
        const S step = point.step();
        const auto goes_on = point.reach() > last_step;
        if (!any(goes_on) || steps == MOST_STEPS) return point;
        const auto below = point.residual < 0;
        low = where(below, y, low);
        high = where(below, high, y);
        const auto trusted = (y + step >= low) & (y + step <= high) & (S{} + RealOf<S>(steps) < STEPS_TRUSTED);
        y = where(goes_on, where(trusted, y + step, (low + high) / 2), y);
    }
}

constexpr double MARGIN = 1e-3;  // the bracket is exact up to rounding, and a root may lie on its end
constexpr double NEAR = 3e-3;    // the last step in single precision; one step in double precision follows

// The error that may remain after the first-order correction of p by the last step.
template <class T> constexpr double CORRECTED_TOLERANCE = sizeof(T) == 4 ? 1e-10 : 1e-18;

// The quantities that depend on the orders and the number of classes alone.
template <class T> struct Equation {
    Equation() = default;

    Equation(const Orders& orders, int64_t classes) : orders(orders), shape(shape_of<T>(orders)) {
        const double most = std::log(double(classes));
        concave = orders.r >= 2 - 1 / orders.q - 1e-12;  // a rounded r = 2 - 1/q counts as concave
        low = -std::max(orders.r - 1, 0.0) * most - MARGIN;
        feedback = std::max(2 - 1 / orders.q - orders.r, 0.0);
        high = feedback * most;
        highest = std::exp(high);
        unit = 1 / orders.temperature;
        fits_float = sizeof(T) == 4 && orders.temperature > 1e-20 && orders.temperature < 1e20;
        last_step = std::max(LEAST_STEP * (1 + high - low), std::pow(CORRECTED_TOLERANCE<T>, 1 / std::min(shape.beta, 2.0)));
    }

    Orders orders{};
    Shape shape;
    bool concave = true, fits_float = false;
    double low, high, highest;  // the bracket of y, and e^high
    double feedback;   // y <= feedback R_q at every root
    double unit;       // x = (z - maximum) unit
    double last_step;  // Newton's, in double precision
};

// p_i = (1 + scale x_i)_+^beta / total, with x_i = (z_i - maximum) unit; R_q of p; and the conjugate of x. From the last
// w^(beta-1), w and u, p_i is w_i^(beta-1) (w_i + turn u_i)_+/total.
template <class S> struct Solution {
    // At the end of the step from a point, to first order, by d(w^beta)/dy = -beta w^(beta-1) u.
    template <class T> Solution(const Equation<T>& equation, const Point<S>& point, S last_scale) {
        const double beta = equation.shape.beta;
        const S last = point.step(), step = where(absolute(last) <= equation.last_step, last, S{});
        scale = last_scale * exp(-step);
        total = point.sums.total - beta * step * point.sums.base_u;
        turn = -beta * step;
        renyi = point.renyi + step * point.renyi_slope;
        conjugate = larger(point.objective(equation.orders), S{}) * equation.orders.temperature;
    }

    S scale, total, turn, renyi, conjugate;
};

// p of a logit, from its place on the line of the last evaluation.
template <class Line, class V> INLINE V probability(const Line&, V place, V power, V turn, V level) {
    const V outside = V{} + Line::outside, inside = place > outside ? place : outside;  // 0 times infinity would be NaN
    return power * larger(Line::w(inside) + Line::u(inside) * turn, V{}) * level;
}

}  // namespace sharmix
