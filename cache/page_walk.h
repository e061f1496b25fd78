// All pages that the trees of a file reach: whether they hold together, and what lies in those that can still
// be read. Every page is visited once at most, so a walk ends whatever the pages say.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "cache/pages.h"

namespace quern {

class PageWalk {
 public:
  // A record of a named tree. The node lives until the function returns.
  using OnRecord = std::function<void(std::string_view tree, const Node& node)>;
  enum class Depth {
    trees,  // all pages of trees, and that no page has two uses, free ones included
    values  // large values, too, whether they hold or not: all of the file is read
  };

  PageWalk(const FileMap& file, const Head& head, uint64_t file_bytes);

  // What cannot be read is a problem and passed over.
  void run(Depth depth, const OnRecord& on_record = {});
  // One that was found elsewhere.
  void problem(std::string what);
  // In the order in which they were found; the first few hundred of them.
  const std::vector<std::string>& problems() const { return problems_; }
  // CORRUPT with the first problem and how many there are.
  Status status() const;

 private:
  struct Walked {
    std::string_view name;
    KeyOrder order = KeyOrder::bytes;
    Tree found;  // what was counted
    std::string last_key;
    bool has_last = false;
  };
  // The keys that may lie below a page: at least `low`, and smaller than `high`.
  struct Bounds {
    std::string low, high;
    bool has_low = false, has_high = false;
  };

  void walk_tree(std::string_view name, const Tree& tree, KeyOrder order,
                 const std::function<void(const Node&)>& on_node);
  void visit(Walked& tree, PageNumber number, int level, int depth, const Bounds& bounds,
             const std::function<void(const Node&)>& on_node);
  void visit_leaf(Walked& tree, const TreePage& page, const Bounds& bounds,
                  const std::function<void(const Node&)>& on_node);
  void visit_branch(Walked& tree, const TreePage& page, int level, int depth, const Bounds& bounds,
                    const std::function<void(const Node&)>& on_node);
  bool take(PageNumber first, uint64_t count);
  void take_free(const Node& node);
  void problem(const Status& status) { problem(status.message()); }

  Head head_;
  const PageReader reader_;
  Depth depth_ = Depth::trees;
  std::vector<bool> taken_;  // by page
  std::vector<std::string> problems_;
  uint64_t problem_count_ = 0;
};

}  // namespace quern
