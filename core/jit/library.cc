#include "core/jit/library.h"

#include <dlfcn.h>
#include <link.h>

namespace quern {

Result<Library> Library::open(const std::string& name) {
  Library library;
  library.handle_ = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library.handle_) {
    const char* reason = dlerror();
    return Status(ErrorCode::NOT_FOUND, reason ? reason : name + ": cannot be loaded");
  }
  struct link_map* map = nullptr;
  const bool known =
      dlinfo(library.handle_, RTLD_DI_LINKMAP, &map) == 0 && map && map->l_name && map->l_name[0];
  library.path_ = known ? map->l_name : name;
  return library;
}

void* Library::find(const char* name) const { return dlsym(handle_, name); }

Status Library::missing(const char* name) const {
  return Status(ErrorCode::UNSUPPORTED, path_ + " has no " + name);
}

}  // namespace quern
