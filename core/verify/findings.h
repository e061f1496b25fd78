// What the ordered trials of a verification have shown, besides that nothing differs.
#pragma once

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include "core/verify/ordered.h"

namespace quern {

// What ordered trials have shown of the conditions of one program.
class Coverage {
 public:
  void note(const OrderedDomain& domain, const std::vector<Elements<OrderedValue>>& outputs) {
    for (const Elements<OrderedValue>& output : outputs)
      for (const OrderedValue& value : output)
        if (!std::isnan(value.real)) seen_ |= value.trace;
    const std::vector<OrderedDomain::Site>& sites = domain.sites();
    sites_.resize(std::max(sites_.size(), sites.size()));
    for (size_t i = 0; i < sites.size(); ++i) {
      sites_[i].name = sites[i].name;
      sites_[i].varies |= sites[i].varies;
    }
  }
  bool varies() const { return seen_ & OrderedValue::kVaries; }
  // "the true branch of y"; "" when both branches of all conditions that vary have reached an output.
  std::string missing() const {
    for (size_t i = 0; i < sites_.size(); ++i)
      for (bool taken : {false, true})
        if (sites_[i].varies && !(seen_ & OrderedDomain::branch(i, taken)))
          return std::string("the ") + (taken ? "true" : "false") + " branch of " + sites_[i].name;
    return "";
  }
  std::vector<std::string> conditions() const {
    std::vector<std::string> names;
    for (const OrderedDomain::Site& site : sites_)
      if (site.varies) names.push_back(site.name);
    return names;
  }

 private:
  uint64_t seen_ = 0;
  std::vector<OrderedDomain::Site> sites_;
};

// Whether an output was the same number in all elements of all trials, wherever it was finite.
class Sameness {
 public:
  void note(size_t output, const OrderedValue& value) {
    if (!value.is_finite()) return;
    if (outputs_.size() <= output) outputs_.resize(output + 1);
    One& one = outputs_[output];
    one.same &= !one.first || *one.first == value.real;
    one.varies |= (value.trace & OrderedValue::kVaries) != 0;
    if (!one.first) one.first = value.real;
  }
  // The output that should vary and does not.
  std::optional<size_t> constant() const {
    for (size_t i = 0; i < outputs_.size(); ++i)
      if (outputs_[i].first && outputs_[i].same && outputs_[i].varies) return i;
    return std::nullopt;
  }

 private:
  struct One {
    std::optional<double> first;
    bool same = true, varies = false;
  };
  std::vector<One> outputs_;
};

}  // namespace quern
