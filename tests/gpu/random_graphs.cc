// random_graphs FOLDER COUNT: writes COUNT graphs of the seeded generator as FOLDER/random_SEED.qg, larger
// than those that the emulator runs.
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "core/graph/text.h"
#include "tests/support/random_graph.h"

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: random_graphs FOLDER COUNT\n");
    return 2;
  }
  quern::RandomGraphOptions options;
  options.max_ops = 12;
  options.max_elements = 1 << 20;
  options.extents = {1, 2, 3, 7, 16, 17, 33, 64, 100, 127, 128, 256, 300};
  for (int seed = 1000; seed < 1000 + std::atoi(argv[2]); ++seed) {
    std::ofstream out(std::filesystem::path(argv[1]) / ("random_" + std::to_string(seed) + ".qg"));
    out << quern::print_graph(quern::random_graph(static_cast<uint64_t>(seed), options));
    if (!out.flush()) {
      std::fprintf(stderr, "random_graphs: cannot write to %s\n", argv[1]);
      return 1;
    }
  }
  return 0;
}
