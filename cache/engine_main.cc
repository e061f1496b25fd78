// quern-store: started by whoever has a cache open, with the socket to it as standard input. Of no use by
// hand.
#include <signal.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "cache/engine_server.h"

int main(int argc, char** argv) {
  if (argc != 4) {
    std::fprintf(stderr, "quern-store is started by quernd, with a socket as its standard input\n");
    return 2;
  }
  signal(SIGPIPE, SIG_IGN);
  signal(SIGXFSZ, SIG_IGN);  // a write that is too large shall fail
  return quern::serve_engine(
      {argv[1], std::strtoull(argv[2], nullptr, 10), std::strcmp(argv[3], "durable") == 0}, 0);
}
