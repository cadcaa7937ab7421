// The map and the losses as one node each of torch's autograd graph, for what is most common: float32 or float64 logits in
// the processor's memory, parameters of one value, and nothing that looks on. Whoever asks for more gets None, and asks
// Python's functions instead; so does a backward pass of which more is asked.
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/utils/pybind.h>

#include <array>
#include <cmath>
#include <numeric>
#include <optional>

#include "kernel.h"

namespace {

using namespace sharmix;
using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

const Kernel* kernel = nullptr;

bool are_within(c10::DispatchKeySet keys, c10::DispatchKeySet allowed) { return !(keys.raw_repr() & ~allowed.raw_repr()); }

// Whether a transform or a mode looks on, to which the computation must be an operator.
bool is_watched() {
    return !are_within(c10::impl::tls_local_dispatch_key_set().included_, c10::default_included_set) ||
           at::impl::torch_function_mode_enabled();
}

// Whether a tensor is memory of the processor, and nothing else.
bool is_plain(const Tensor& tensor) {
    constexpr c10::DispatchKeySet plain({c10::DispatchKey::CPU, c10::DispatchKey::ADInplaceOrView,
                                         c10::DispatchKey::AutogradCPU, c10::DispatchKey::AutocastCPU});
    return are_within(tensor.key_set(), plain) && !tensor._fw_grad(0).defined();
}

bool is_real(const Tensor& tensor) { return tensor.scalar_type() == at::kFloat || tensor.scalar_type() == at::kDouble; }

Matrix matrix(const Tensor& rows) { return {rows.element_size(), rows.numel() / rows.size(-1), rows.size(-1)}; }

Tensor single(double value, at::ScalarType type) {
    Tensor tensor = at::empty({}, type);
    with_type(tensor.element_size(), [&](auto kind) { *tensor.mutable_data_ptr<decltype(kind)>() = value; });
    return tensor;
}

double value_of(const Tensor& tensor) {
    double value = 0;
    with_type(tensor.element_size(), [&](auto kind) { value = *tensor.const_data_ptr<decltype(kind)>(); });
    return value;
}

// q, r and temperature: numbers, or tensors without a dimension.
struct Parameters {
    std::array<double, 3> values;
    std::array<Tensor, 3> tensors;         // undefined where it is a number
    std::array<bool, 3> are_wanted = {};  // whether gradients by them are

    static Parameters kept(const AutogradContext& context, const variable_list& variables) {
        Parameters parameters;
        const auto values = context.saved_data.at("orders").toDoubleVector();
        std::copy_n(values.begin(), 3, parameters.values.begin());
        std::copy_n(variables.end() - 3, 3, parameters.tensors.begin());
        size_t edge = 1;  // after the logits'; a number has none
        for (size_t i = 0; i < 3; ++i)
            if (parameters.tensors[i].defined()) parameters.are_wanted[i] = context.needs_input_grad(edge++);
        return parameters;
    }

    void keep(AutogradContext& context, variable_list variables) const {
        context.saved_data["orders"] = std::vector<double>(values.begin(), values.end());
        variables.insert(variables.end(), tensors.begin(), tensors.end());
        context.save_for_backward(std::move(variables));
    }

    // What the kernel takes: for q > 2 plain torch measures better.
    bool are_taken() const {
        const auto [q, r, temperature] = values;
        return 1 <= q && q <= 2 && 0 < r && std::isfinite(r) && 0 < temperature && std::isfinite(temperature);
    }

    bool any_wanted() const { return are_wanted[0] || are_wanted[1] || are_wanted[2]; }

    OrderColumns columns() const { return {{nullptr, values[0]}, {nullptr, values[1]}, {nullptr, values[2]}}; }

    // By those that are wanted: the sum of along [rows, 3], times weights [rows] or of one element.
    std::array<Tensor, 3> gradients(const Tensor& along, const Tensor& weights) const {
        std::array<double, 3> sums = {};
        with_type(along.element_size(), [&](auto kind) {
            const auto *terms = along.const_data_ptr<decltype(kind)>(), *weight = weights.const_data_ptr<decltype(kind)>();
            const int64_t step = weights.dim() > 0;
            for (int64_t row = 0, i = 0; i < along.numel(); ++row)
                for (double& sum : sums) sum += double(weight[row * step]) * terms[i++];
        });
        std::array<Tensor, 3> found;
        for (size_t i = 0; i < 3; ++i)
            if (are_wanted[i]) found[i] = single(sums[i], tensors[i].scalar_type());
        return found;
    }
};

// Room for some numbers [..., count] for each row of a matrix [..., classes].
Tensor room(const Tensor& rows, int64_t count, at::ScalarType type) {
    auto shape = rows.sizes().vec();
    shape.back() = count;
    return at::empty(shape, type);
}

// The same for what belongs to q, r and temperature, none if no gradient by them is wanted.
Tensor room_along(const Tensor& rows, const Parameters& parameters) {
    return room(rows, parameters.any_wanted() ? 3 : 0, rows.scalar_type());
}

void* address(Tensor& values) { return values.numel() ? values.mutable_data_ptr() : nullptr; }

// The gradients that a module's `pull_back` finds for the logits, q, r and temperature.
template <class... Given>
variable_list in_python(const char* module, bool wants_logits, const Parameters& parameters, const Given&... given) {
    py::gil_scoped_acquire lock;
    py::list orders, wanted;
    wanted.append(wants_logits);
    for (size_t i = 0; i < 3; ++i) {
        wanted.append(parameters.are_wanted[i]);
        if (parameters.tensors[i].defined()) orders.append(parameters.tensors[i]);
        else orders.append(parameters.values[i]);
    }
    const py::sequence found = py::module_::import(module).attr("pull_back")(wanted, given..., orders);
    variable_list gradients;
    for (const py::handle gradient : found) gradients.push_back(gradient.is_none() ? Tensor() : py::cast<Tensor>(gradient));
    return gradients;
}

// Whether the kernel can pull this gradient back, once, from memory.
bool is_common(const Tensor& grad, const Tensor& kept) {
    return !at::GradMode::is_enabled() && !is_watched() && is_plain(grad) && is_plain(kept) &&
           grad.scalar_type() == kept.scalar_type();
}

Tensor probabilities_of(const Tensor& logits, const Parameters& parameters) {
    const Tensor z = logits.contiguous();
    Tensor p = at::empty_like(z);
    py::gil_scoped_release unlocked;
    kernel->solve(matrix(z), z.const_data_ptr(), parameters.columns(), p.mutable_data_ptr(), nullptr);
    return p;
}

struct SharmaMittal : torch::autograd::Function<SharmaMittal> {
    static Tensor forward(AutogradContext* context, const Tensor& logits, const std::optional<Tensor>&,
                          const std::optional<Tensor>&, const std::optional<Tensor>&, const Parameters& parameters) {
        Tensor p = probabilities_of(logits, parameters);
        parameters.keep(*context, {p});
        return p;
    }

    static variable_list backward(AutogradContext* context, variable_list grads) {
        const variable_list variables = context->get_saved_variables();
        const Parameters parameters = Parameters::kept(*context, variables);
        const Tensor& p = variables[0];
        variable_list gradients(5);
        if (!is_common(grads[0], p)) {
            gradients = in_python("sharmix.maps", context->needs_input_grad(0), parameters, grads[0], p);
            gradients.resize(5);
            return gradients;
        }
        const Tensor kept = p.contiguous(), grad = grads[0].contiguous();
        Tensor along = room_along(kept, parameters);
        gradients[0] = at::empty_like(kept);
        kernel->map_backward(matrix(kept), kept.const_data_ptr(), grad.const_data_ptr(), parameters.columns(),
                             gradients[0].mutable_data_ptr(), address(along));
        if (parameters.any_wanted()) {
            const auto found = parameters.gradients(along, single(1, along.scalar_type()));
            std::copy(found.begin(), found.end(), gradients.begin() + 1);
        }
        return gradients;
    }
};

enum class Reduction { none, mean, sum };

struct Targets {
    Tensor classes;
    int64_t ignored;
    Reduction reduction;

    // What a mean is divided by.
    double count() const {
        if (reduction != Reduction::mean) return 1;
        const int64_t* begin = classes.const_data_ptr<int64_t>();
        const int64_t* end = begin + classes.numel();
        return std::max<double>(1, (end - begin) - std::count(begin, end, ignored));
    }
};

// Losses of rows, reduced.
Tensor reduced(const Tensor& rows, const Targets& targets) {
    if (targets.reduction == Reduction::none) return rows;
    double sum = 0;
    with_type(rows.element_size(), [&](auto kind) {
        const auto* begin = rows.const_data_ptr<decltype(kind)>();
        sum = std::accumulate(begin, begin + rows.numel(), 0.0);
    });
    return single(sum / targets.count(), rows.scalar_type());
}

// The gradient by each row's loss, or one for all, where the rows were divided by `count`.
Tensor by_rows(const Tensor& grad, double count) {
    return grad.dim() ? grad.contiguous() : single(value_of(grad) / count, grad.scalar_type());
}

// The loss of each row, and what its backward pass needs beside the logits.
struct Losses {
    Tensor rows, states, slopes;

    Losses(const Tensor& z, const Targets& targets, const Parameters& parameters)
        : rows(at::empty(targets.classes.sizes(), z.options())),
          states(room(z, 4, at::kDouble)),
          slopes(room_along(z, parameters)) {
        py::gil_scoped_release unlocked;
        kernel->class_loss(matrix(z), z.const_data_ptr(), targets.classes.const_data_ptr<int64_t>(), targets.ignored,
                           parameters.columns(), rows.mutable_data_ptr(), (State*)states.mutable_data_ptr(),
                           address(slopes));
    }
};

struct SharmaMittalLoss : torch::autograd::Function<SharmaMittalLoss> {
    static Tensor forward(AutogradContext* context, const Tensor& logits, const std::optional<Tensor>&,
                          const std::optional<Tensor>&, const std::optional<Tensor>&, const Parameters& parameters,
                          const Targets& targets) {
        const Tensor z = logits.contiguous();
        const Losses losses(z, targets, parameters);
        context->saved_data["ignored"] = targets.ignored;
        context->saved_data["count"] = targets.count();
        parameters.keep(*context, {logits, targets.classes, losses.states, losses.slopes});
        return reduced(losses.rows, targets);
    }

    static variable_list backward(AutogradContext* context, variable_list grads) {
        const variable_list variables = context->get_saved_variables();
        const Parameters parameters = Parameters::kept(*context, variables);
        const Tensor &logits = variables[0], &classes = variables[1], &states = variables[2], &slopes = variables[3];
        const int64_t ignored = context->saved_data.at("ignored").toInt();
        const double count = context->saved_data.at("count").toDouble();
        if (!is_common(grads[0], logits)) {
            variable_list gradients = in_python("sharmix._class_loss", context->needs_input_grad(0), parameters, grads[0],
                                                ignored, count, logits, classes, states, slopes);
            gradients.resize(6);
            return gradients;
        }
        const Tensor grad = by_rows(grads[0], count);
        variable_list gradients(6);
        if (context->needs_input_grad(0)) {
            const Tensor z = logits.contiguous();
            gradients[0] = at::empty_like(z);
            kernel->class_loss_backward(matrix(z), z.const_data_ptr(), classes.const_data_ptr<int64_t>(), ignored,
                                        (const State*)states.const_data_ptr(), grad.const_data_ptr(), grad.dim() > 0,
                                        {nullptr, parameters.values[0]}, gradients[0].mutable_data_ptr());
        }
        if (parameters.any_wanted()) {
            const auto found = parameters.gradients(slopes, grad);
            std::copy(found.begin(), found.end(), gradients.begin() + 1);
        }
        return gradients;
    }
};

Tensor alpha_relu_losses(const Tensor& logits, const Threshold& threshold, const Targets& targets) {
    const Tensor z = logits.contiguous();
    Tensor rows = at::empty(targets.classes.sizes(), z.options());
    py::gil_scoped_release unlocked;
    kernel->alpha_relu_loss(matrix(z), z.const_data_ptr(), targets.classes.const_data_ptr<int64_t>(), targets.ignored,
                            threshold, rows.mutable_data_ptr());
    return rows;
}

struct AlphaReLULoss : torch::autograd::Function<AlphaReLULoss> {
    static Tensor forward(AutogradContext* context, const Tensor& logits, const Threshold& threshold, const Targets& targets) {
        context->saved_data["alpha"] = threshold.alpha;
        context->saved_data["tau"] = threshold.tau;
        context->saved_data["ignored"] = targets.ignored;
        context->saved_data["count"] = targets.count();
        context->save_for_backward({logits, targets.classes});
        return reduced(alpha_relu_losses(logits, threshold, targets), targets);
    }

    static variable_list backward(AutogradContext* context, variable_list grads) {
        const auto number = [&](const char* name) { return context->saved_data.at(name).toDouble(); };
        const Threshold threshold = {number("alpha"), number("tau")};
        const int64_t ignored = context->saved_data.at("ignored").toInt();
        const variable_list variables = context->get_saved_variables();
        const Tensor &logits = variables[0], &classes = variables[1];
        if (!is_common(grads[0], logits)) {
            py::gil_scoped_acquire lock;
            const py::object pull_back = py::module_::import("sharmix.alpha_relu").attr("pull_back");
            const py::object found =
                pull_back(grads[0], ignored, number("count"), logits, classes, threshold.alpha, threshold.tau);
            return {py::cast<Tensor>(found), Tensor(), Tensor()};
        }
        const Tensor z = logits.contiguous(), grad = by_rows(grads[0], number("count"));
        Tensor gradient = at::empty_like(z);
        kernel->alpha_relu_loss_backward(matrix(z), z.const_data_ptr(), classes.const_data_ptr<int64_t>(), ignored, threshold,
                                         grad.const_data_ptr(), grad.dim() > 0, gradient.mutable_data_ptr());
        return {gradient, Tensor(), Tensor()};
    }
};

bool wants_node(const Tensor& logits, const Parameters& parameters) {
    return at::GradMode::is_enabled() && (logits.requires_grad() || parameters.any_wanted());
}

std::optional<Tensor> optional(const Tensor& tensor) { return tensor.defined() ? std::optional(tensor) : std::nullopt; }

// Node's output, with its place in the graph.
template <class Node, class... Inputs>
Tensor output_of(const Tensor& logits, const Parameters& parameters, const Inputs&... inputs) {
    const auto& [q, r, temperature] = parameters.tensors;
    return Node::apply(logits, optional(q), optional(r), optional(temperature), parameters, inputs...);
}

// What Python hands in; nothing, where it is not what is common.

const Tensor* read_tensor(PyObject* given) {
    if (!THPVariable_CheckExact(given)) return nullptr;
    const Tensor& tensor = THPVariable_Unpack(given);
    return is_plain(tensor) ? &tensor : nullptr;
}

const Tensor* read_logits(PyObject* given) {
    const Tensor* logits = read_tensor(given);
    return logits && is_real(*logits) && logits->dim() > 0 && logits->numel() > 0 ? logits : nullptr;
}

std::optional<double> read_number(PyObject* given) {
    if (!PyFloat_CheckExact(given) && !PyLong_CheckExact(given)) return std::nullopt;
    const double number = PyFloat_AsDouble(given);
    if (!PyErr_Occurred()) return number;
    PyErr_Clear();
    return std::nullopt;
}

std::optional<Parameters> read_parameters(PyObject* const* given) {
    Parameters parameters;
    for (size_t i = 0; i < 3; ++i)
        if (const auto number = read_number(given[i])) {
            parameters.values[i] = *number;
        } else {
            const Tensor* tensor = read_tensor(given[i]);
            if (!tensor || !is_real(*tensor) || tensor->dim() > 0) return std::nullopt;
            parameters.values[i] = value_of(*tensor);
            parameters.tensors[i] = *tensor;
            parameters.are_wanted[i] = at::GradMode::is_enabled() && tensor->requires_grad();
        }
    return parameters.are_taken() ? std::optional(parameters) : std::nullopt;
}

std::optional<Threshold> read_threshold(PyObject* alpha, PyObject* tau, const Tensor& logits) {
    const auto order = read_number(alpha);
    auto constant = read_number(tau);
    if (const Tensor* tensor = constant ? nullptr : read_tensor(tau))
        if (is_real(*tensor) && tensor->dim() == 0 && !tensor->requires_grad()) constant = value_of(*tensor);
    if (!order || !constant || !std::isfinite(*constant)) return std::nullopt;
    if (!kernel->takes_alpha(logits.element_size(), *order)) return std::nullopt;
    return Threshold{*order, *constant};
}

std::optional<Reduction> read_reduction(PyObject* given) {
    const std::pair<const char*, Reduction> names[] = {
        {"mean", Reduction::mean}, {"sum", Reduction::sum}, {"none", Reduction::none}};
    for (const auto& [name, reduction] : names)
        if (PyUnicode_Check(given) && PyUnicode_CompareWithASCIIString(given, name) == 0) return reduction;
    return std::nullopt;
}

std::optional<Targets> read_targets(PyObject* given, PyObject* ignore_index, PyObject* reduction, const Tensor& logits) {
    const Tensor* classes = read_tensor(given);
    const auto reduced = read_reduction(reduction);
    if (!classes || classes->scalar_type() != at::kLong || !PyLong_CheckExact(ignore_index) || !reduced) return std::nullopt;
    if (classes->sizes() != logits.sizes().slice(0, logits.dim() - 1)) return std::nullopt;
    const Targets targets{classes->contiguous(), PyLong_AsLongLong(ignore_index), *reduced};
    if (PyErr_Occurred()) throw python_error();
    const int64_t* begin = targets.classes.const_data_ptr<int64_t>();
    const bool outside = kernel->first_outside(begin, targets.ignored, classes->numel(), logits.size(-1)) >= 0;
    return outside ? std::nullopt : std::optional(targets);
}

// The doors.

template <class Computation> PyObject* answer(Py_ssize_t given, Py_ssize_t expected, Computation computation) {
    HANDLE_TH_ERRORS
    TORCH_CHECK_TYPE(given == expected, expected, " arguments are needed, got ", given);
    if (kernel && !is_watched())
        if (const auto output = computation()) return THPVariable_Wrap(*output);
    Py_RETURN_NONE;
    END_HANDLE_TH_ERRORS
}

// (logits, q, r, temperature) -> probabilities
PyObject* map(PyObject*, PyObject* const* given, Py_ssize_t count) {
    return answer(count, 4, [&]() -> std::optional<Tensor> {
        const Tensor* logits = read_logits(given[0]);
        const auto parameters = logits ? read_parameters(given + 1) : std::nullopt;
        if (!parameters) return std::nullopt;
        if (!wants_node(*logits, *parameters)) return probabilities_of(*logits, *parameters);
        return output_of<SharmaMittal>(*logits, *parameters);
    });
}

// (logits, q, r, temperature, targets, ignore_index, reduction) -> loss
PyObject* loss(PyObject*, PyObject* const* given, Py_ssize_t count) {
    return answer(count, 7, [&]() -> std::optional<Tensor> {
        const Tensor* logits = read_logits(given[0]);
        const auto parameters = logits ? read_parameters(given + 1) : std::nullopt;
        const auto targets = parameters ? read_targets(given[4], given[5], given[6], *logits) : std::nullopt;
        if (!targets) return std::nullopt;
        if (!wants_node(*logits, *parameters)) return reduced(Losses(logits->contiguous(), *targets, *parameters).rows, *targets);
        return output_of<SharmaMittalLoss>(*logits, *parameters, *targets);
    });
}

// (logits, alpha, tau, targets, ignore_index, reduction) -> loss
PyObject* alpha_relu_loss(PyObject*, PyObject* const* given, Py_ssize_t count) {
    return answer(count, 6, [&]() -> std::optional<Tensor> {
        const Tensor* logits = read_logits(given[0]);
        const auto threshold = logits ? read_threshold(given[1], given[2], *logits) : std::nullopt;
        const auto targets = threshold ? read_targets(given[3], given[4], given[5], *logits) : std::nullopt;
        if (!targets) return std::nullopt;
        if (at::GradMode::is_enabled() && logits->requires_grad()) return AlphaReLULoss::apply(*logits, *threshold, *targets);
        return reduced(alpha_relu_losses(*logits, *threshold, *targets), *targets);
    });
}

PyObject* use(PyObject*, PyObject* capsule) {
    kernel = static_cast<const Kernel*>(PyCapsule_GetPointer(capsule, KERNEL));
    if (!kernel) return nullptr;
    Py_RETURN_NONE;
}

template <class Door> PyCFunction fast(Door door) { return (PyCFunction)(void (*)())door; }

PyMethodDef doors[] = {
    {"use", use, METH_O, nullptr},
    {"map", fast(map), METH_FASTCALL, nullptr},
    {"loss", fast(loss), METH_FASTCALL, nullptr},
    {"alpha_relu_loss", fast(alpha_relu_loss), METH_FASTCALL, nullptr},
    {nullptr, nullptr, 0, nullptr},
};

PyModuleDef definition = {PyModuleDef_HEAD_INIT, "sharmix._autograd", nullptr, 0, doors, nullptr, nullptr, nullptr, nullptr};

}  // namespace

PyMODINIT_FUNC PyInit__autograd(void) {
    PyObject* module = PyModule_Create(&definition);
    if (module && PyModule_AddStringConstant(module, "torch_version", BUILT_FOR_TORCH) < 0) Py_CLEAR(module);
    return module;
}
