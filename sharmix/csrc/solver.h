// Solves rows: each alone, or several together.
#pragma once

#include "group_solver.h"
#include "row_solver.h"

namespace sharmix {

template <class T> class Solver {
  public:
    Solver(const OrderColumns& orders, int64_t classes, bool with_slopes)
        : orders_(orders), classes_(classes), with_slopes_(with_slopes), candidates_(classes), alone_(classes),
          together_(classes, with_slopes) {}

    // Calls take(row, solved, p) for the wanted rows from `begin` to `end`, in some order. A class that p does not list has
    // the probability 0, or NaN in an undefined row.
    template <class Wanted, class Take> void solve(const T* logits, int64_t begin, int64_t end, Wanted wanted, Take take) {
        for (int64_t row = begin; row < end; ++row) {
            if (!wanted(row)) continue;
            const Orders orders = orders_[row];
            if (!(orders == equation_.orders)) equation_ = Equation<T>(orders, classes_);
            candidates_.find(logits + row * classes_, classes_, equation_);
            if (!candidates_.is_defined()) {
                take(row, Solved::undefined(), Entries<T>{});
            } else if (!orders_.shared() || !equation_.concave || together_.is_crowd(candidates_.count, equation_.shape)) {
                solve_alone(row, take);
            } else {
                together_.add(row, candidates_);
                if (together_.is_full()) together_.solve(equation_, take);
            }
        }
        if (!together_.is_empty()) together_.solve(equation_, take);
    }

  private:
    template <class Take> void solve_alone(int64_t row, Take take) {
        const Solution<double> found = alone_.solve(equation_, candidates_);
        const T* p = candidates_.value.get();
        Solved solved{candidates_.maximum, found.scale, found.total, found.conjugate, {}};
        if (with_slopes_)
            solved.slopes = conjugate_gradients<OneRow<T>>(p, padded(candidates_.count), found.renyi, equation_.orders);
        take(row, solved, candidates_.entries());
    }

    OrderColumns orders_;
    int64_t classes_;
    bool with_slopes_;
    Equation<T> equation_;
    Candidates<T> candidates_;
    RowSolver<T> alone_;
    GroupSolver<T> together_;
};

}  // namespace sharmix
