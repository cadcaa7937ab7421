// The largest of several maxima, outside the concave region; the method is that of sharmix/_global_maximum.py.
#pragma once

#include <vector>

#include "equation.h"

namespace sharmix {

constexpr size_t MOST_CELLS = 4096;
constexpr double ROUNDING = 1e-13;  // of a bound, beside its own size

// What bounds the equation and the objective over a cell, at one of its ends.
struct End {
    End(const Orders& orders, const Point<double>& point)
        : y(point.y), feedback((orders.q - orders.r) * point.renyi), rising(point.residual + feedback),
          linear(point.linear(orders)), entropy(point.scaled_entropy(orders)) {}

    double y, feedback, rising, linear, entropy;
};

struct Cell {
    End low, high;

    bool may_hold_maximum(double best) const {
        const double rounding = ROUNDING * (1 + high.feedback);
        return low.rising - high.feedback <= rounding && high.rising - low.feedback >= -rounding &&
               low.linear + high.entropy + ROUNDING * (1 + high.entropy) >= best;
    }

    bool crosses() const { return low.rising < low.feedback && high.rising >= high.feedback; }
};

// The y of the largest objective in [low, high]; `at` gives the Point of a y.
template <class At> double global_maximum(At at, const Orders& orders, double low, double high) {
    const auto end = [&](double y) { return End(orders, at(y)); };
    const double order = std::max(orders.delta(), 1.0);
    const double width = std::pow(10 * ROUNDING, order / (1 + order));
    std::vector<Cell> cells{{end(low), end(high)}}, halves;
    double best = 0;
    while (cells.front().high.y - cells.front().low.y > width && cells.size() <= MOST_CELLS) {
        halves.clear();
        for (const Cell& cell : cells) {
            const End middle = end((cell.low.y + cell.high.y) / 2);
            best = std::max(best, middle.linear + middle.entropy);
            halves.push_back({cell.low, middle});
            halves.push_back({middle, cell.high});
        }
        cells.clear();
        for (const Cell& half : halves)
            if (half.may_hold_maximum(best)) cells.push_back(half);
        if (cells.empty()) return low;
    }
    double y = low, largest = -1;
    for (const Cell& cell : cells) {
        if (!cell.crosses()) continue;
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
