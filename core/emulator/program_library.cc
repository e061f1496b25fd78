#include "core/emulator/program_library.h"

#include <cxxabi.h>
#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <stdio.h>

#include <cstring>
#include <fstream>
#include <span>
#include <sstream>

#include "core/emulator/temporary_folder.h"

namespace quern::emulated {

namespace {

std::string demangle(const char* name) {
  int status = 0;
  char* text = abi::__cxa_demangle(name, nullptr, nullptr, &status);
  std::string result = status == 0 ? text : name;
  free(text);
  return result;
}

std::string program_prefix(int program) { return "program_" + std::to_string(program) + "::"; }

// The file was made by the linker a moment ago, so offsets are trusted once the header is there.
template <class T>
std::span<const T> table(const std::string& file, uint64_t offset, uint64_t bytes) {
  return {reinterpret_cast<const T*>(file.data() + offset), bytes / sizeof(T)};
}

}  // namespace

Result<std::shared_ptr<ProgramLibrary>> ProgramLibrary::open(const std::string& directory) {
  std::shared_ptr<ProgramLibrary> library(new ProgramLibrary(directory));
  if (Status status = library->load(); !status.ok()) return status;
  if (Status status = library->read_sections(); !status.ok()) return status;
  return library;
}

ProgramLibrary::~ProgramLibrary() {
  if (handle_) dlclose(handle_);
  remove_temporary_folder(directory_);
}

Status ProgramLibrary::load() {
  std::string path = directory_ + "/programs.so";
  handle_ = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!handle_)
    return Status(ErrorCode::INTERNAL, std::string("emulated program cannot be loaded: ") + dlerror());
  runtime_ = static_cast<const Runtime**>(dlsym(handle_, "quern_runtime"));
  check(runtime_ != nullptr, "every compiled program defines quern_runtime");
  link_map* map = nullptr;
  check(dlinfo(handle_, RTLD_DI_LINKMAP, &map) == 0, "a loaded object has a link map");
  base_ = map->l_addr;
  return Status();
}

Status ProgramLibrary::read_sections() {
  std::ifstream stream(directory_ + "/programs.so", std::ios::binary);
  std::string file((std::istreambuf_iterator<char>(stream)), {});
  if (file.size() < sizeof(Elf64_Ehdr))
    return Status(ErrorCode::IO, directory_ + "/programs.so cannot be read");
  auto* header = reinterpret_cast<const Elf64_Ehdr*>(file.data());
  for (const Elf64_Phdr& segment :
       table<Elf64_Phdr>(file, header->e_phoff, header->e_phnum * sizeof(Elf64_Phdr))) {
    if (segment.p_type == PT_LOAD && !(segment.p_flags & PF_W))
      constants_.push_back({"constants", base_ + segment.p_vaddr, segment.p_memsz});
  }
  auto sections = table<Elf64_Shdr>(file, header->e_shoff, header->e_shnum * sizeof(Elf64_Shdr));
  const char* section_names = file.data() + sections[header->e_shstrndx].sh_offset;
  for (const Elf64_Shdr& section : sections) {
    if (section.sh_type != SHT_SYMTAB) continue;
    const char* names = file.data() + sections[section.sh_link].sh_offset;
    for (const Elf64_Sym& symbol : table<Elf64_Sym>(file, section.sh_offset, section.sh_size)) {
      if (ELF64_ST_TYPE(symbol.st_info) != STT_OBJECT || symbol.st_shndx >= sections.size()) continue;
      if (strcmp(section_names + sections[symbol.st_shndx].sh_name, "quern_shared") != 0) continue;
      std::string name = demangle(names + symbol.st_name);
      if (name.find("::quern_guard") == std::string::npos)
        variables_.push_back({name, base_ + symbol.st_value, symbol.st_size});
    }
  }
  return Status();
}

const Kernel* ProgramLibrary::find_kernel(int program, std::string_view name) const {
  std::string symbol = "quern_kernels_" + std::to_string(program);
  auto* kernel = static_cast<const Kernel*>(dlsym(handle_, symbol.c_str()));
  for (; kernel && kernel->name; ++kernel) {
    if (kernel->name == name) return kernel;
  }
  return nullptr;
}

std::vector<ProgramSection> ProgramLibrary::shared_arrays(int program, std::string_view kernel) const {
  const std::string prefix = program_prefix(program) + std::string(kernel) + "(";
  std::vector<ProgramSection> arrays;
  for (const ProgramSection& variable : variables_) {
    if (!variable.name.starts_with(prefix)) continue;
    arrays.push_back(variable);
    arrays.back().name.erase(0, variable.name.rfind("::") + 2);
  }
  return arrays;
}

int ProgramLibrary::find_line(int program, const void* site) {
  if (auto found = lines_.find(site); found != lines_.end()) return found->second;
  std::ostringstream command;
  command << "addr2line -i -e '" << directory_ << "/programs.so' " << std::hex
          << reinterpret_cast<uintptr_t>(site) - 1 - base_ << " 2>/dev/null";
  int line = 0;
  if (FILE* pipe = popen(command.str().c_str(), "r")) {
    // Innermost frame first; the frames of the prelude have other file names.
    std::string wanted = "program_" + std::to_string(program) + ".cu:";
    char text[512];
    while (fgets(text, sizeof text, pipe)) {
      if (const char* place = strstr(text, wanted.c_str()); place && line == 0)
        line = atoi(place + wanted.size());
    }
    pclose(pipe);
  }
  return lines_[site] = line;
}

}  // namespace quern::emulated
