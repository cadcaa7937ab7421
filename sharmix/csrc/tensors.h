// Tensors as Python objects: read and made by their own methods, through Python's limited API alone, so that one build
// works with every Python from 3.11 on and with every torch.
#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <cmath>
#include <limits>
#include <utility>

#include "kernel.h"

namespace sharmix {

struct PythonError {};  // thrown where Python's error is set

// A reference of one's own to an object.
class Object {
  public:
    Object() = default;
    explicit Object(PyObject* owned) : object_(owned) {
        if (!owned) throw PythonError();
    }
    Object(Object&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
    Object& operator=(Object&& other) noexcept {
        std::swap(object_, other.object_);
        return *this;
    }
    ~Object() { Py_XDECREF(object_); }

    PyObject* get() const { return object_; }
    PyObject* release() { return std::exchange(object_, nullptr); }

  private:
    PyObject* object_ = nullptr;
};

// A name of Python's that is looked up often.
class Name {
  public:
    explicit Name(const char* text) : text_(text) {}
    PyObject* get() {
        if (!object_) object_ = PyUnicode_InternFromString(text_);
        return object_;
    }

  private:
    const char* text_;
    PyObject* object_ = nullptr;
};

inline Object attribute(PyObject* object, Name& name) { return Object(PyObject_GetAttr(object, name.get())); }

template <class... Given> Object call(PyObject* object, Name& method, Given... given) {
    return Object(PyObject_CallMethodObjArgs(object, method.get(), given..., nullptr));
}

inline Name data_ptr("data_ptr"), shape_name("shape"), dtype_name("dtype"), contiguous("contiguous"), new_empty("new_empty");
inline Name to("to"), numel("numel"), is_floating_point("is_floating_point"), is_neg("is_neg"), resolve_neg("resolve_neg");

inline bool is_true(const Object& object) { return object.get() == Py_True; }

inline int64_t integer(PyObject* object) {
    const int64_t value = PyLong_AsLongLong(object);
    if (value == -1 && PyErr_Occurred()) throw PythonError();
    return value;
}

inline double number(PyObject* object) {
    const double value = PyFloat_AsDouble(object);
    if (value == -1 && PyErr_Occurred()) throw PythonError();
    return value;
}

// The objects of torch that the kernel needs besides the methods of tensors.
struct Torch {
    PyObject *tensor, *parameter, *float16, *bfloat16, *float32, *float64, *int64, *empty_like, *doubles, *single;
    PyObject *strided, *transforms_active, *modes_active, *tracing_state, *grad_enabled, *forward_ad;
};
inline Torch torch_objects;

// Null for a tensor without memory.
inline void* address(PyObject* tensor) {
    PyObject* found = PyObject_CallMethodObjArgs(tensor, data_ptr.get(), nullptr);
    if (found) return PyLong_AsVoidPtr(Object(found).get());
    PyErr_Clear();
    return nullptr;
}

// The memory of a contiguous tensor; null if there are no entries.
inline void* memory(PyObject* tensor, int64_t entries) {
    void* found = address(tensor);
    if (!found && entries && !PyErr_Occurred())
        PyErr_SetString(PyExc_RuntimeError, "a tensor has entries but no memory, as after its storage was resized to 0");
    if (PyErr_Occurred()) throw PythonError();
    return found;
}

// The tensor as one whose memory holds what it reads: contiguous, and with its own sign.
inline Object as_read(PyObject* tensor) {
    Object found = call(tensor, contiguous);
    if (is_true(call(found.get(), is_neg))) found = call(found.get(), resolve_neg);
    return found;
}

// A tensor of so many entries or more, contiguous and of a dtype, whatever was made of it between two passes.
struct Numbers {
    Numbers(PyObject* tensor, PyObject* dtype, int64_t entries) : object(as_read(tensor)) {
        if (attribute(object.get(), dtype_name).get() != dtype) object = call(object.get(), to, dtype);
        count = integer(call(object.get(), numel).get());
        if (count < entries) {
            PyErr_Format(PyExc_RuntimeError, "a tensor of %lld entries stands where %lld are needed", count, entries);
            throw PythonError();
        }
        data = memory(object.get(), entries);
    }

    Object object;
    int64_t count;
    void* data;
};

inline bool is_half(const Object& dtype) {
    return dtype.get() == torch_objects.float16 || dtype.get() == torch_objects.bfloat16;
}

// A contiguous tensor [..., classes] of float32 or float64, as a matrix; one of half precision is converted.
struct Rows {
    explicit Rows(PyObject* tensor) : object(as_read(tensor)), shape(attribute(object.get(), shape_name)) {
        Object dtype = attribute(object.get(), dtype_name);
        if (is_half(dtype)) {
            object = call(object.get(), to, torch_objects.float32);
            dtype = attribute(object.get(), dtype_name);
        }
        const Py_ssize_t dims = PyTuple_Size(shape.get());
        if (dims < 1 || (dtype.get() != torch_objects.float32 && dtype.get() != torch_objects.float64)) {
            PyErr_SetString(PyExc_TypeError, "the kernel needs rows of float32 or float64");
            throw PythonError();
        }
        of = {dtype.get() == torch_objects.float32 ? 4 : 8, 1, integer(PyTuple_GetItem(shape.get(), dims - 1))};
        for (Py_ssize_t dim = 0; dim + 1 < dims; ++dim) of.rows *= integer(PyTuple_GetItem(shape.get(), dim));
        data = memory(object.get(), of.rows * of.classes);
    }

    PyObject* dtype() const { return of.bytes == 4 ? torch_objects.float32 : torch_objects.float64; }

    // A tensor without entries yet, of the same shape and kind.
    Object empty_like() const { return Object(PyObject_CallFunctionObjArgs(torch_objects.empty_like, object.get(), nullptr)); }

    // One with a number for each row, or several, of the same kind or as another tensor.
    Object empty_rows(int64_t numbers = 0, PyObject* like = nullptr) const {
        Object rows(PySequence_GetSlice(shape.get(), 0, PyTuple_Size(shape.get()) - 1));
        if (numbers) {
            const Object last(Py_BuildValue("(L)", (long long)numbers));
            rows = Object(PySequence_Concat(rows.get(), last.get()));
        }
        return call(like ? like : object.get(), new_empty, rows.get());
    }

    Object object, shape;
    Matrix of{};
    void* data = nullptr;
};

// A float, NaN for None.
inline double number_or_none(PyObject* object) {
    return object == Py_None ? std::numeric_limits<double>::quiet_NaN() : number(object);
}

// A float, None, or a tensor of float64 [rows, 1].
inline Column column(PyObject* order, int64_t rows) {
    if (PyFloat_Check(order) || order == Py_None) return {nullptr, number_or_none(order)};
    return {static_cast<const double*>(memory(order, rows)), 0};
}

// Runs body(T()) outside the interpreter's lock.
template <class Body> void run(int64_t bytes, Body body) {
    bool enough_memory = true;
    Py_BEGIN_ALLOW_THREADS;
    try {
        with_type(bytes, body);
    } catch (const std::bad_alloc&) {
        enough_memory = false;
    }
    Py_END_ALLOW_THREADS;
    if (enough_memory) return;
    PyErr_NoMemory();
    throw PythonError();
}

// A function of Python's from one that throws, with a number of arguments.
template <auto Function, Py_ssize_t Count> PyObject* door(PyObject*, PyObject* const* given, Py_ssize_t count) {
    if (count != Count) return PyErr_Format(PyExc_TypeError, "%zd arguments are needed, got %zd", Count, count);
    try {
        return Function(given).release();
    } catch (const PythonError&) {
        return nullptr;
    }
}

inline Name new_full("new_full"), item("item"), dim("dim"), is_cpu("is_cpu"), layout("layout");
inline Name current_level("_current_level"), requires_grad("requires_grad");

inline bool is_tensor(PyObject* object) {
    PyObject* type = reinterpret_cast<PyObject*>(Py_TYPE(object));
    return type == torch_objects.tensor || type == torch_objects.parameter;
}

// Whether it is a tensor in the processor's memory and nothing else. One that is zero by a flag has no memory.
inline bool is_plain(PyObject* object) {
    return is_tensor(object) && is_true(attribute(object, is_cpu)) && attribute(object, layout).get() == torch_objects.strided &&
           address(object);
}

inline bool is_real(PyObject* tensor) {
    const Object dtype = attribute(tensor, dtype_name);
    return dtype.get() == torch_objects.float32 || dtype.get() == torch_objects.float64;
}

// Whether no transform, mode or tangent looks on.
inline bool is_alone() {
    return !is_true(Object(PyObject_CallNoArgs(torch_objects.transforms_active))) &&
           !integer(Object(PyObject_CallNoArgs(torch_objects.modes_active)).get()) &&
           Object(PyObject_CallNoArgs(torch_objects.tracing_state)).get() == Py_None &&
           integer(attribute(torch_objects.forward_ad, current_level).get()) < 0;
}

// The value of an order, NaN if it is not of one value, or an integer tensor.
inline double value_of(PyObject* order) {
    if (PyFloat_CheckExact(order) || PyLong_CheckExact(order)) return number(order);
    if (!is_tensor(order) || !is_true(attribute(order, is_cpu)) || !is_true(call(order, is_floating_point)) ||
        integer(call(order, dim).get()))
        return std::numeric_limits<double>::quiet_NaN();
    return number(call(order, item).get());
}

}  // namespace sharmix
