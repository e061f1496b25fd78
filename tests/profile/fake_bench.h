// A GPU that does what a test says: how long each program takes, which hang, fault or are wrong, and what
// disturbs it.
#pragma once

#include <algorithm>
#include <functional>
#include <map>
#include <string>
#include <thread>

#include "core/base/random.h"
#include "core/profile/bench.h"

namespace quern {

class FakeBench : public Bench {
 public:
  struct Behaviour {
    double us = 10, us_beside = 0;  // when its first launch overlaps what is in front of it; 0: the same
    std::string wrong;
    Status add, check, time;        // errors of the calls
    double seconds = 0;             // that a check takes
    std::function<void()> on_time;  // before it is timed
  };
  std::map<std::string, Behaviour> programs;  // by the code of their plans
  double noise = 0.01;                        // relative, of each round
  std::function<double(int round)> slowdown;  // of everything in a round, counted over all calls
  std::function<double(const Launch&)> launch_us;  // what each launch takes, whatever the behaviour says
  std::function<double(const Launch&)> crowded_us;  // and more, where it is timed with others
  Result<double> disturbed = 0.0;
  Status lost;  // of all calls

  // What happened.
  std::map<std::string, int> checks, rounds;
  std::map<uint32_t, std::string> loaded;
  bool timed_unchecked = false;

  const std::string& device() const override { return device_; }
  Result<uint32_t> add(const Plan& plan, bool, const LaunchRange& timed) override {
    if (!lost.ok()) return lost;
    if (Status status = programs[plan.cubin].add; !status.ok()) return status;
    loaded[++last_] = plan.cubin;
    beside_[last_] = !plan.launches.empty() && plan.launches[0].overlaps;
    const size_t end = std::min(timed.end, plan.launches.size());
    for (size_t i = timed.first; launch_us && i < end; ++i) {
      launches_us_[last_] += launch_us(plan.launches[i]);
      if (crowded_us && end - timed.first > 1) launches_us_[last_] += crowded_us(plan.launches[i]);
    }
    return last_;
  }
  void remove(uint32_t plan) override { loaded.erase(plan); }
  Result<Check> check(uint32_t plan) override {
    if (!lost.ok()) return lost;
    const Behaviour& own = programs[loaded.at(plan)];
    ++checks[loaded.at(plan)];
    std::this_thread::sleep_for(std::chrono::duration<double>(own.seconds));
    if (!own.check.ok()) return own.check;
    return Check{1e-4, 0.5, 64, 64, "random, masked", own.wrong};
  }
  Result<std::vector<Time>> time(std::span<const uint32_t> plans, int count) override {
    if (!lost.ok()) return lost;
    std::vector<Time> times(plans.size());
    for (const uint32_t plan : plans) {
      const Behaviour& own = programs[loaded.at(plan)];
      timed_unchecked |= !checks.count(loaded.at(plan)) || !own.wrong.empty();
      if (own.on_time) own.on_time();
      if (!own.time.ok()) return own.time;
    }
    for (int round = 0; round < count; ++round, ++round_)
      for (size_t i = 0; i < plans.size(); ++i) {
        const Behaviour& own = programs[loaded.at(plans[i])];
        const double base = launch_us                                   ? launches_us_.at(plans[i])
                            : beside_.at(plans[i]) && own.us_beside > 0 ? own.us_beside
                                                                        : own.us;
        const double us = base * (1 + noise * random_.symmetric()) * (slowdown ? slowdown(round_) : 1);
        times[i].cold.push_back(us);
        times[i].hot.push_back(us / 2);
        ++rounds[loaded.at(plans[i])];
      }
    return times;
  }
  Result<double> disturbance() override { return lost.ok() ? disturbed : lost; }

 private:
  std::string device_ = "Fake GPU, driver 13000";
  uint32_t last_ = 0;
  std::map<uint32_t, bool> beside_;
  std::map<uint32_t, double> launches_us_;
  int round_ = 0;
  Random random_{7};

 public:
  void seed(uint64_t value) { random_ = Random(value); }
};

}  // namespace quern
