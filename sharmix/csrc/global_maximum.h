// The largest of several maxima, outside the concave region; the method is that of sharmix/_mathematics/global_maximum.py.
#pragma once

#include <vector>

#include "equation.h"

namespace sharmix {

constexpr size_t MOST_CELLS = 4096;
constexpr double ROUNDING = 1e-13;  // of a bound, beside its own size
constexpr double SURELY = 1e-6;     // a slope above which rounding has not made it positive

// What bounds the equation and the objective over a cell, at one of its ends.
struct End {
    End(const Orders& orders, const Point<double>& point)
        : y(point.y), feedback((orders.q - orders.r) * point.renyi), rising(point.residual + feedback),
          linear(point.linear(orders)), entropy(point.scaled_entropy(orders)), sums(point.sums) {}

    double y, feedback, rising, linear, entropy;
    Sums<double> sums;
};

struct Cell {
    End low, high;

    bool may_hold_maximum(double best) const {
        const double rounding = ROUNDING * (1 + high.feedback);
        return low.rising - high.feedback <= rounding && high.rising - low.feedback >= -rounding &&
               low.linear + high.entropy + ROUNDING * (1 + high.entropy) >= best;
    }

    bool crosses() const { return low.rising < low.feedback && high.rising >= high.feedback; }

    // Whether the equation can only rise, so that there is one root at most. As y rises, a term of a sum rises but for its
    // power of u, which shrinks as e^-y; so the sums at the ends bound those between, and they the slope.
    bool surely_rises(const Orders& orders) const {
        const Sums<double>&a = low.sums, &b = high.sums;
        const double stretch = std::exp(high.y - low.y), delta = orders.delta(), feedback = (orders.q - orders.r) / delta;
        const double least_u = -a.base_u / stretch / b.total, most_u = -b.base_u * stretch / a.total;
        const double excess = b.base_uu * stretch * stretch + a.power_u / stretch * (least_u + delta);
        const double rest = excess > 0 ? a.total + a.power_u : b.total + b.power_u;
        const double slope = 1 + (1 - feedback) * (feedback < 1 ? least_u : most_u) - feedback * excess / (delta * rest);
        return slope > SURELY;
    }
};

// The y of the largest objective in [low, high]; `at` gives the Point of a y, and narrow(y) is told that no larger one will
// be asked for.
template <class At, class Narrow>
double global_maximum(At at, Narrow narrow, const Orders& orders, double low, double high) {
    const auto end = [&](double y) { return End(orders, at(y)); };
    const double order = std::max(orders.delta(), 1.0);
    const double width = std::pow(10 * ROUNDING, order / (1 + order));
    std::vector<Cell> cells{{end(low), end(high)}}, halves, last;
    double best = 0;
    while (!cells.empty() && cells.front().high.y - cells.front().low.y > width && cells.size() <= MOST_CELLS) {
        halves.clear();
        for (const Cell& cell : cells) {
            const End middle = end((cell.low.y + cell.high.y) / 2);
            best = std::max(best, middle.linear + middle.entropy);
            halves.push_back({cell.low, middle});
            halves.push_back({middle, cell.high});
        }
        cells.clear();
        for (const Cell& half : halves)
            if (half.may_hold_maximum(best)) (half.surely_rises(orders) ? last : cells).push_back(half);
        high = low;
        for (const auto* alive : {&cells, &last})
            for (const Cell& cell : *alive) high = std::max(high, cell.high.y);
        narrow(high);
    }
    last.insert(last.end(), cells.begin(), cells.end());
    double y = low, largest = -1;
    for (const Cell& cell : last) {
        if (!cell.crosses() || !cell.may_hold_maximum(best)) continue;
        const Point<double> root = newton(at, cell.high.y, cell.low.y, cell.high.y, LEAST_STEP);
        const double objective = root.linear(orders) + root.scaled_entropy(orders);
        if (objective > largest) {
            largest = objective;
            y = root.y;
        }
    }
    return y;
}

}  // namespace sharmix
