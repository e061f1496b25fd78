// Of the many DAGs that compute a piece, those that go on: the best of every form.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "core/search/roles.h"

namespace quern {

struct Kept {
  double score;
  Dag dag;
  bool operator<(const Kept& other) const {
    return std::tie(score, dag.choices) < std::tie(other.score, other.dag.choices);
  }
};

// Those with the lowest scores of every form. What is kept does not depend on the order of offers.
class Keeper {
 public:
  void offer(const std::string& form, Kept kept);
  void merge(const Keeper& other);
  std::vector<Kept> all() const;  // best first

 private:
  std::map<std::string, std::vector<Kept>> by_form_;
};

// What kinds of kernels a DAG can become: which indices it can be looped over, with which accumulators.
std::string form_of(const Dag& dag, const Terms& terms);

}  // namespace quern
