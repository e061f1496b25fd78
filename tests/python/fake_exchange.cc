// DLPack's table of functions for the tensors of fake_torch.py, which describe themselves in a DLTensor at
// the address `_dl`. Outputs and workspace come from the fake driver.
#define Py_LIMITED_API 0x030A0000
#include <Python.h>
#include <dlfcn.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>

namespace {

struct Tensor {
  void* data;
  int32_t device_type, device, rank;
  uint8_t code, bits;
  uint16_t lanes;
  int64_t *shape, *strides;
  uint64_t offset;
};

struct Managed {
  uint32_t major, minor;
  void* context;
  void (*free)(Managed*);
  uint64_t flags;
  Tensor tensor;
};

template <typename F>
F* driver(const char* name) {
  static void* library = dlopen(getenv("QUERN_LIBCUDA"), RTLD_NOW);
  return reinterpret_cast<F*>(dlsym(library, name));
}

void release(Managed* made) {
  static auto* const free_memory = driver<int(uint64_t)>("cuMemFree_v2");
  free_memory(reinterpret_cast<uint64_t>(made->tensor.data));
  free(made);
}

int allocate(Tensor* like, Managed** out, void*, void (*)(void*, const char*, const char*)) {
  static auto* const get_memory = driver<int(uint64_t*, size_t)>("cuMemAlloc_v2");
  size_t bytes = like->bits / 8;
  for (int32_t i = 0; i < like->rank; ++i) bytes *= static_cast<size_t>(like->shape[i]);
  uint64_t address = 0;
  if (get_memory(&address, bytes) != 0) return -1;
  *out = static_cast<Managed*>(calloc(1, sizeof(Managed)));
  (*out)->major = 1, (*out)->free = release, (*out)->tensor = *like;
  (*out)->tensor.data = reinterpret_cast<void*>(address);
  return 0;
}

int view(void* object, Tensor* out) {
  PyObject* at = PyObject_GetAttrString(static_cast<PyObject*>(object), "_dl");
  if (!at) return -1;
  memcpy(out, PyLong_AsVoidPtr(at), sizeof *out);
  Py_DECREF(at);
  return 0;
}

int current_stream(int32_t, int32_t, void** stream) {
  PyObject* torch = PyImport_ImportModule("torch");
  PyObject* number = torch ? PyObject_GetAttrString(torch, "stream") : nullptr;
  *stream = number ? PyLong_AsVoidPtr(number) : nullptr;
  Py_XDECREF(torch);
  Py_XDECREF(number);
  return number ? 0 : -1;
}

struct Api {
  uint32_t major, minor;
  const Api* previous;
  int (*allocate)(Tensor*, Managed**, void*, void (*)(void*, const char*, const char*));
  void *share, *to_object;
  int (*view)(void*, Tensor*);
  int (*current_stream)(int32_t, int32_t, void**);
};
// As a later version would have it, whose table begins with its own and leads to this one.
const Api kApi = {1, 3, nullptr, allocate, nullptr, nullptr, view, current_stream};
const Api kLater = {2, 0, &kApi, nullptr, nullptr, nullptr, nullptr, nullptr};

int fill(PyObject* module) {
  PyObject* capsule = PyCapsule_New(const_cast<Api*>(&kLater), "dlpack_exchange_api", nullptr);
  const int status = PyModule_AddObjectRef(module, "api", capsule);
  Py_XDECREF(capsule);
  return status;
}

PyModuleDef_Slot kSlots[] = {{Py_mod_exec, reinterpret_cast<void*>(fill)}, {}};
PyModuleDef kModule = {
    PyModuleDef_HEAD_INIT, "fake_exchange", nullptr, 0, nullptr, kSlots, nullptr, nullptr, nullptr};

}  // namespace

PyMODINIT_FUNC PyInit_fake_exchange() { return PyModuleDef_Init(&kModule); }
