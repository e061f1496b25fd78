#include "core/codegen/wgmma_text.h"

#include "core/base/dtype_info.h"

namespace quern {

namespace {

// "%4, %5, %6, %7"
std::string operands(int first, int count) {
  std::string out;
  for (int i = 0; i < count; ++i) out += (i ? ", %" : "%") + std::to_string(first + i);
  return out;
}

// The function with `a` as one descriptor, or as four registers. Sums are added to if `add`, else begun;
// neither operand is negated.
std::string multiply(const WgmmaShape& shape, const std::string& name, bool registers) {
  const int sums = shape.columns / 2, left = registers ? 4 : 1;
  std::string out = std::string("  template <") + (registers ? "" : "bool kTurnedA, ") +
                    "bool kTurnedB>\n  static __device__ __forceinline__ void multiply(float* d, " +
                    (registers ? "const unsigned* a" : "unsigned long long a") +
                    ", unsigned long long b, bool add) {\n";
  out += "    asm volatile(\"{\\n.reg .pred add;\\nsetp.ne.b32 add, %" +
         std::to_string(sums + left + (registers ? 2 : 3)) + ", 0;\\nwgmma.mma_async.sync.aligned.m64n" +
         std::to_string(shape.columns) + "k16.f32." + name + "." + name + " {" + operands(0, sums) + "}, ";
  out += registers ? "{" + operands(sums, left) + "}" : operands(sums, left);
  out += ", " + operands(sums + left, 1) + ", add, 1, 1, " + operands(sums + left + 1, registers ? 1 : 2) +
         ";\\n}\"\n      : ";
  for (int i = 0; i < sums; ++i) out += (i ? ", " : "") + ("\"+f\"(d[" + std::to_string(i) + "])");
  out += "\n      : ";
  for (int i = 0; i < left; ++i)
    out += registers ? "\"r\"(a[" + std::to_string(i) + "]), " : std::string("\"l\"(a), ");
  out += std::string("\"l\"(b), ") + (registers ? "" : "\"n\"(int(kTurnedA)), ") +
         "\"n\"(int(kTurnedB)), \"r\"(int(add))\n      : \"memory\");\n  }\n";
  return out;
}

}  // namespace

std::string wgmma_text(const WgmmaShape& shape) {
  const std::string name = dtype_info(shape.dtype).tensor_cores;
  return "template <>\nstruct WgmmaShape<" + name + ", " + std::to_string(shape.columns) + "> {\n" +
         multiply(shape, name, false) + multiply(shape, name, true) + "};\n";
}

}  // namespace quern
