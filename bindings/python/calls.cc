// The quick way of a call of a plan: from tensors to quern_launch without a step in Python. It takes tensors whose type offers DLPack's table of
// functions (`__dlpack_c_exchange_api__`: https://dmlc.github.io/dlpack/latest/c_api.html), as those of PyTorch do from 2.10 on. Whatever is unusual
// is not its business: it returns None, and the Python module looks at each tensor and says what is wrong.
//
// One binary serves all versions of Python from 3.10 on (the stable ABI).
#define Py_LIMITED_API 0x030A0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <array>
#include <cstdint>
#include <vector>

#include "capi/quern.h"

namespace {

// As DLPack 1 lays them out; what stands behind `current_stream` in later minor versions is not read.
namespace dl {
constexpr int32_t kCuda = 2, kCudaManaged = 13;
constexpr uint8_t kUnsigned = 1;

struct DataType {
  uint8_t code, bits;
  uint16_t lanes;
};

struct Tensor {
  void* data;
  int32_t device_type, device;
  int32_t rank;
  DataType dtype;
  int64_t *shape, *strides;
  uint64_t offset;
};

struct ManagedTensor {
  uint32_t major, minor;
  void* context;
  void (*free)(ManagedTensor*);
  uint64_t flags;
  Tensor tensor;
};

struct Api {
  uint32_t major, minor;
  const Api* previous;
  int (*allocate)(Tensor* like, ManagedTensor** made, void* context,
                  void (*fail)(void*, const char*, const char*));
  int (*share)(void* object, ManagedTensor**);
  int (*to_object)(ManagedTensor*, void** object);
  int (*view)(void* object, Tensor*);
  int (*current_stream)(int32_t device_type, int32_t device, void** stream);
};

// The table of a type of tensors, or NULL, without an error.
const Api* api_of(PyObject* type) {
  PyObject* capsule = PyObject_GetAttrString(type, "__dlpack_c_exchange_api__");
  const Api* api =
      capsule ? static_cast<const Api*>(PyCapsule_GetPointer(capsule, "dlpack_exchange_api")) : nullptr;
  Py_XDECREF(capsule);
  PyErr_Clear();
  while (api && api->major != 1) api = api->previous;
  return api && api->view && api->allocate && api->current_stream ? api : nullptr;
}

void* address(const Tensor& tensor) { return static_cast<char*>(tensor.data) + tensor.offset; }
}  // namespace dl

constexpr size_t kMostBuffers = 256;  // of a plan, inputs and outputs each; others are not called this way
constexpr size_t kMostTypes = 8;      // of tensors, such as subclasses

struct Buffer {
  dl::DataType dtype;
  std::vector<int64_t> shape, strides;

  bool holds_nothing() const {
    for (int64_t extent : shape)
      if (extent == 0) return true;
    return false;
  }

  bool fits(const dl::Tensor& tensor, int32_t device) const {
    if (tensor.dtype.code != dtype.code || tensor.dtype.bits != dtype.bits || tensor.dtype.lanes != 1)
      return false;
    if ((tensor.device_type != dl::kCuda && tensor.device_type != dl::kCudaManaged) ||
        tensor.device != device)
      return false;
    if (static_cast<size_t>(tensor.rank) != shape.size()) return false;
    int64_t dense = 1;
    for (size_t i = shape.size(); i-- > 0;) {
      if (tensor.shape[i] != shape[i]) return false;
      // The stride of a dimension with one element means nothing.
      if (shape[i] > 1 && (tensor.strides ? tensor.strides[i] : dense) != strides[i] && !holds_nothing())
        return false;
      dense *= shape[i];
    }
    return true;
  }
};

using Launch = quern_status(quern_plan*, void*, void* const*, void* const*, void*, quern_error*);
using Addresses = std::array<void*, kMostBuffers>;

struct State {
  const dl::Api* api = nullptr;
  Launch* launch = nullptr;
  quern_plan* plan = nullptr;
  std::vector<Buffer> inputs, outputs;
  int64_t workspace_bytes = 0;
  PyObject* empties = nullptr;         // device -> a list of functions that make an output each
  PyObject* current_device = nullptr;  // None where there is one device only
  std::array<PyObject*, kMostTypes> types = {};
  PyObject* made_for = nullptr;  // the list of empties() for `device`
  int32_t device = -1;

  ~State() {
    Py_XDECREF(empties);
    Py_XDECREF(current_device);
    Py_XDECREF(made_for);
    for (PyObject* type : types) Py_XDECREF(type);
  }
};

struct Caller {
  PyObject_HEAD State* state;
};

State& state_of(PyObject* self) { return *reinterpret_cast<Caller*>(self)->state; }

// Whether the table is that of this object's type, too.
bool is_known(State& state, PyObject* object) {
  PyObject* type = reinterpret_cast<PyObject*>(Py_TYPE(object));
  for (PyObject*& known : state.types) {
    if (known == type) return true;
    if (known) continue;
    if (dl::api_of(type) != state.api) return false;
    Py_INCREF(type);
    known = type;
    return true;
  }
  return false;
}

// The address of a tensor that is as the plan wants it. The first one decides the device.
bool look(State& state, PyObject* object, const Buffer& buffer, int32_t* device, void** address) {
  dl::Tensor tensor;
  if (!is_known(state, object) || state.api->view(object, &tensor) != 0) return false;
  if (*device < 0) *device = tensor.device;
  *address = dl::address(tensor);
  return buffer.fits(tensor, *device);
}

bool is_current(State& state, int32_t device) {
  if (state.current_device == Py_None) return true;
  PyObject* current = PyObject_CallNoArgs(state.current_device);
  const bool same = current && PyLong_AsLong(current) == device;
  Py_XDECREF(current);
  return same;
}

// Outputs that the framework allocates: one, or a tuple of them.
PyObject* make_outputs(State& state, int32_t device) {
  if (state.device != device) {
    PyObject* made = PyObject_CallFunction(state.empties, "i", static_cast<int>(device));
    if (!made) return nullptr;
    Py_XDECREF(state.made_for);
    state.made_for = made, state.device = device;
  }
  PyObject* makers = Py_NewRef(state.made_for);  // another thread may replace it meanwhile
  const auto count = static_cast<Py_ssize_t>(state.outputs.size());
  PyObject* made = count == 1 ? PyObject_CallNoArgs(PyList_GetItem(makers, 0)) : PyTuple_New(count);
  for (Py_ssize_t i = 0; made && count > 1 && i < count; ++i) {
    PyObject* output = PyObject_CallNoArgs(PyList_GetItem(makers, i));
    if (output)
      PyTuple_SetItem(made, i, output);
    else
      Py_CLEAR(made);
  }
  Py_DECREF(makers);
  return made;
}

// A new reference to what is filled: one tensor, or a tuple of them. NULL, with or without an error, if that is not for here to do.
PyObject* outputs_of(State& state, PyObject* out, int32_t device) {
  if (out == Py_None) return make_outputs(state, device);
  const bool many = PyTuple_Check(out) || PyList_Check(out);
  if (!many && state.outputs.size() == 1) return Py_NewRef(out);
  if (!many || static_cast<size_t>(PySequence_Size(out)) != state.outputs.size()) return nullptr;
  return state.outputs.size() == 1 ? PySequence_GetItem(out, 0) : PySequence_Tuple(out);
}

void ignore(void*, const char*, const char*) {}

class Workspace {
 public:
  ~Workspace() {
    if (made_ && made_->free) made_->free(made_);  // work on the stream it was allocated for still has it
  }

  // `given` is an address, or None for the framework to allocate it.
  bool get(State& state, PyObject* given, int32_t device) {
    if (given == Py_None && state.workspace_bytes == 0) return true;
    if (given != Py_None) {
      at_ = PyLong_Check(given) ? PyLong_AsVoidPtr(given) : nullptr;
      return at_ != nullptr && !PyErr_Occurred();
    }
    dl::Tensor like = {nullptr, dl::kCuda, device, 1, {dl::kUnsigned, 8, 1}, &state.workspace_bytes,
                       nullptr, 0};
    if (state.api->allocate(&like, &made_, nullptr, ignore) != 0) return made_ = nullptr, false;
    at_ = dl::address(made_->tensor);
    return true;
  }

  void* address() const { return at_; }

 private:
  dl::ManagedTensor* made_ = nullptr;
  void* at_ = nullptr;
};

bool are_apart(const State& state, const Addresses& read, const Addresses& written) {
  for (size_t o = 0; o < state.outputs.size(); ++o)
    for (size_t i = 0; i < state.inputs.size(); ++i)
      if (read[i] == written[o] && read[i]) return false;
  return true;
}

bool launch(State& state, PyObject* filled, const Addresses& read, int32_t device, PyObject* workspace) {
  Addresses written;
  const bool one = state.outputs.size() == 1;
  for (size_t i = 0; i < state.outputs.size(); ++i) {
    PyObject* output = one ? filled : PyTuple_GetItem(filled, static_cast<Py_ssize_t>(i));
    if (!look(state, output, state.outputs[i], &device, &written[i])) return false;
  }
  void* stream = nullptr;
  Workspace scratch;
  if (!are_apart(state, read, written) || !scratch.get(state, workspace, device)) return false;
  if (state.api->current_stream(dl::kCuda, device, &stream) != 0) return false;
  quern_error error;
  quern_status status;
  Py_BEGIN_ALLOW_THREADS;
  status = state.launch(state.plan, stream, read.data(), written.data(), scratch.address(), &error);
  Py_END_ALLOW_THREADS;
  return status == QUERN_OK;
}

// call(inputs, out, workspace): the output, a tuple of them, or None where something was not as usual and nothing was launched, or a launch failed.
PyObject* call(PyObject* self, PyObject* const* args, Py_ssize_t count) {
  State& state = state_of(self);
  if (count != 3 || !PyTuple_Check(args[0]))
    return PyErr_SetString(PyExc_TypeError, "call(inputs, out, workspace)"), nullptr;
  if (static_cast<size_t>(PyTuple_Size(args[0])) != state.inputs.size()) Py_RETURN_NONE;
  Addresses read;
  int32_t device = -1;
  bool quick = true;
  for (size_t i = 0; quick && i < state.inputs.size(); ++i)
    quick =
        look(state, PyTuple_GetItem(args[0], static_cast<Py_ssize_t>(i)), state.inputs[i], &device, &read[i]);
  quick = quick && is_current(state, device);
  PyObject* filled = quick ? outputs_of(state, args[1], device) : nullptr;
  quick = filled && launch(state, filled, read, device, args[2]);
  PyErr_Clear();
  if (quick) return filled;
  Py_XDECREF(filled);
  Py_RETURN_NONE;
}

bool read_list(PyObject* given, std::vector<int64_t>* list) {
  for (Py_ssize_t i = 0; i < PyTuple_Size(given); ++i)
    list->push_back(PyLong_AsLongLong(PyTuple_GetItem(given, i)));
  return !PyErr_Occurred();
}

// From a list of (DLPack type, bits, shape, strides).
bool read_buffers(PyObject* given, std::vector<Buffer>* buffers) {
  for (Py_ssize_t i = 0; i < PyList_Size(given); ++i) {
    Buffer buffer;
    PyObject *shape, *strides;
    if (!PyArg_ParseTuple(PyList_GetItem(given, i), "bbO!O!", &buffer.dtype.code, &buffer.dtype.bits,
                          &PyTuple_Type, &shape, &PyTuple_Type, &strides) ||
        !read_list(shape, &buffer.shape) || !read_list(strides, &buffer.strides))
      return false;
    buffers->push_back(std::move(buffer));
  }
  return true;
}

// Caller(type, launch, plan, inputs, outputs, workspace_bytes, empties, current_device); `launch` and `plan` are addresses, which the caller keeps
// alive. ValueError for a type without the table, or too many buffers.
PyObject* make(PyTypeObject* type, PyObject* args, PyObject*) {
  PyObject *tensor_type, *inputs, *outputs, *empties, *current_device;
  unsigned long long launch, plan;
  long long workspace_bytes;
  if (!PyArg_ParseTuple(args, "OKKO!O!LOO", &tensor_type, &launch, &plan, &PyList_Type, &inputs, &PyList_Type,
                        &outputs, &workspace_bytes, &empties, &current_device))
    return nullptr;
  auto* alloc = reinterpret_cast<allocfunc>(PyType_GetSlot(type, Py_tp_alloc));
  PyObject* self = alloc(type, 0);
  if (!self) return nullptr;
  State& state = *(reinterpret_cast<Caller*>(self)->state = new State);
  state.api = dl::api_of(tensor_type);
  state.launch = reinterpret_cast<Launch*>(launch);
  state.plan = reinterpret_cast<quern_plan*>(plan);
  state.workspace_bytes = workspace_bytes;
  state.empties = Py_NewRef(empties), state.current_device = Py_NewRef(current_device);
  if (!read_buffers(inputs, &state.inputs) || !read_buffers(outputs, &state.outputs))
    return Py_DECREF(self), nullptr;
  if (!state.api || state.inputs.empty() || state.inputs.size() > kMostBuffers ||
      state.outputs.size() > kMostBuffers) {
    PyErr_SetString(PyExc_ValueError, "no tensors for this way of calling");
    return Py_DECREF(self), nullptr;
  }
  return self;
}

void end(PyObject* self) {
  PyTypeObject* type = Py_TYPE(self);
  delete reinterpret_cast<Caller*>(self)->state;
  reinterpret_cast<freefunc>(PyType_GetSlot(type, Py_tp_free))(self);
  Py_DECREF(type);
}

PyMethodDef kMethods[] = {
    {"call", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(call)), METH_FASTCALL, nullptr}, {}};
PyType_Slot kSlots[] = {{Py_tp_new, reinterpret_cast<void*>(make)},
                        {Py_tp_dealloc, reinterpret_cast<void*>(end)},
                        {Py_tp_methods, kMethods},
                        {}};
PyType_Spec kSpec = {"quern._calls.Caller", sizeof(Caller), 0, Py_TPFLAGS_DEFAULT, kSlots};

int fill_module(PyObject* module) {
  PyObject* type = PyType_FromSpec(&kSpec);
  if (!type) return -1;
  const int status = PyModule_AddObjectRef(module, "Caller", type);
  Py_DECREF(type);
  return status;
}

PyModuleDef_Slot kModuleSlots[] = {{Py_mod_exec, reinterpret_cast<void*>(fill_module)}, {}};
PyModuleDef kModule = {PyModuleDef_HEAD_INIT, "_calls", nullptr, 0,      nullptr,
                       kModuleSlots,          nullptr,  nullptr, nullptr};

}  // namespace

PyMODINIT_FUNC PyInit__calls() { return PyModuleDef_Init(&kModule); }
