// Closed-loop load on one server over a Unix socket: each of a number of connections asks, waits for the
// whole answer, and asks again. The same loop for Quern's protocol and for Redis', so that both are measured
// alike.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace quern::serve {

enum class Protocol { quern, redis };

struct Load {
  Protocol protocol = Protocol::quern;
  std::string socket;
  int clients = 1;
  double seconds = 1;
  std::vector<std::string> requests;  // whole ones, as they are sent; taken in iterations
  size_t least_bytes = 0;             // an answer with fewer is an error
};

struct Measured {
  double p50_us = 0, p99_us = 0, per_second = 0, answers = 0;
};

// Ends the program, saying why, when the server does not answer as it should.
Measured run_load(const Load& load);

// What asks for plan or value `number`.
std::string quern_request(uint64_t number);
std::string redis_request(uint64_t number);
// Stores a value.
void redis_set(const std::string& socket, uint64_t number, const std::string& value);

int connect_to(const std::string& socket);  // -1 when nobody listens
[[noreturn]] void die(const std::string& why);

}  // namespace quern::serve
