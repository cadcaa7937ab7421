// Solves rows: each alone, or several together.
#pragma once

#include "group_solver.h"
#include "row_solver.h"

namespace sharmix {

template <class T> class Solver {
  public:
    Solver(const OrderColumns& orders, int64_t classes, bool with_slopes)
        : orders_(orders), classes_(classes), with_slopes_(with_slopes), candidates_(classes), row_solver_(classes),
          group_solver_(classes, with_slopes) {}

    // Calls on_solved(row, result, p) for the wanted rows from `begin` to `end`, in some order. A class that p does not list
    // has the probability 0, or NaN in an undefined row.
    template <class Wanted, class OnSolved>
    void solve(const T* logits, int64_t begin, int64_t end, Wanted wanted, OnSolved on_solved) {
        for (int64_t row = begin; row < end; ++row) {
            if (!wanted(row)) continue;
            const Orders orders = orders_[row];
            if (!(orders == equation_.orders)) equation_ = Equation<T>(orders, classes_);
            candidates_.find(logits + row * classes_, classes_, equation_);
            if (!candidates_.is_defined()) {
                on_solved(row, RowResult::undefined(), Entries<T>{});
            } else if (!orders_.shared() || !equation_.concave ||
                       group_solver_.is_crowd(candidates_.count, equation_.shape)) {
                solve_alone(row, on_solved);
            } else {
                group_solver_.add(row, candidates_);
                if (group_solver_.is_full()) group_solver_.solve(equation_, on_solved);
            }
        }
        if (!group_solver_.is_empty()) group_solver_.solve(equation_, on_solved);
    }

  private:
    template <class OnSolved> void solve_alone(int64_t row, OnSolved on_solved) {
        const Solution<double> found = row_solver_.solve(equation_, candidates_);
        const T* p = candidates_.value.get();
        RowResult result{candidates_.maximum, found.scale, found.total, found.conjugate, {}};
        if (with_slopes_)
            result.slopes = conjugate_gradients<OneRow<T>>(p, padded(candidates_.count), found.renyi, equation_.orders);
        on_solved(row, result, candidates_.entries());
    }

    OrderColumns orders_;
    int64_t classes_;
    bool with_slopes_;
    Equation<T> equation_;
    Candidates<T> candidates_;
    RowSolver<T> row_solver_;
    GroupSolver<T> group_solver_;
};

}  // namespace sharmix
