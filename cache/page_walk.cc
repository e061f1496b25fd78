#include "cache/page_walk.h"

#include <algorithm>

namespace quern {

namespace {

constexpr size_t kMaxProblems = 500;
// LMDB may leave the file short of pages that it took and gave back without writing them.
constexpr uint64_t kMaxUnwritten = 1 << 20;

Head with_real_end(Head head, uint64_t file_bytes) {
  head.last_page = std::min(head.last_page, file_bytes / head.page_bytes + kMaxUnwritten);
  return head;
}

}  // namespace

PageWalk::PageWalk(const FileMap& file, const Head& head, uint64_t file_bytes)
    : head_(with_real_end(head, file_bytes)), reader_(file, head_), taken_(head_.last_page + 1) {
  if (head_ != head) problem("a head page names a last page far beyond the end of the file");
}

void PageWalk::problem(std::string what) {
  ++problem_count_;
  if (problems_.size() < kMaxProblems) problems_.push_back(std::move(what));
}

Status PageWalk::status() const {
  if (problem_count_ == 0) return {};
  return Status(
      ErrorCode::CORRUPT,
      problems_.front() +
          (problem_count_ > 1 ? " (and " + std::to_string(problem_count_ - 1) + " more problems)" : ""));
}

bool PageWalk::take(PageNumber first, uint64_t count) {
  if (first < 2 || first > head_.last_page || count > head_.last_page - first + 1) {
    problem("page " + std::to_string(first) + " is used, and lies outside of the file");
    return false;
  }
  for (PageNumber page = first; page < first + count; ++page) {
    if (taken_[page]) {
      problem("page " + std::to_string(page) + " is used twice");
      return false;
    }
    taken_[page] = true;
  }
  return true;
}

// The value is a count and as many numbers of pages, the largest first.
void PageWalk::take_free(const Node& node) {
  const auto value = reader_.value_of(node);
  if (!value) return problem(value.status());
  std::vector<uint64_t> numbers(value->size / sizeof(uint64_t));
  value->view().copy(reinterpret_cast<char*>(numbers.data()), numbers.size() * sizeof(uint64_t));
  if (node.key.size() != sizeof(uint64_t) || numbers.empty() || numbers[0] >= numbers.size())
    return problem("a list of free pages is damaged");
  for (size_t i = 1; i <= numbers[0]; ++i) {
    if (i > 1 && numbers[i] >= numbers[i - 1]) return problem("a list of free pages is not in order");
    if (!take(numbers[i], 1)) return;
  }
}

void PageWalk::run(Depth depth, const OnRecord& on_record) {
  depth_ = depth;
  walk_tree("main", head_.main, KeyOrder::bytes, [&](const Node& named) {
    const auto tree = tree_of(named);
    if (!tree) return problem(tree.status());
    const std::string name(named.key);
    walk_tree(name, *tree, KeyOrder::bytes, [&](const Node& node) {
      if (node.is_tree) return problem("there is a table within the table " + name);
      if (on_record) on_record(name, node);
    });
  });
  // Last, so that a page that is in use and listed as free stays in use.
  walk_tree("free", head_.free, KeyOrder::numbers, [&](const Node& node) { take_free(node); });
}

void PageWalk::walk_tree(std::string_view name, const Tree& tree, KeyOrder order,
                         const std::function<void(const Node&)>& on_node) {
  Walked walked{name, order, {}, {}, false};
  walked.found.pad = tree.pad;
  walked.found.flags = tree.flags;
  walked.found.depth = tree.depth;
  walked.found.root = tree.root;
  if (tree.root != kNoPage) visit(walked, tree.root, 1, tree.depth, {}, on_node);
  if (problem_count_ == 0 && (walked.found != tree || (tree.root == kNoPage) != (tree.depth == 0)))
    problem("the table " + std::string(name) + " does not have the pages and records that it should");
}

void PageWalk::visit(Walked& tree, PageNumber number, int level, int depth, const Bounds& bounds,
                     const std::function<void(const Node&)>& on_node) {
  if (level > kMaxTreeDepth || !take(number, 1)) return;
  TreePage page;
  if (Status status = page.load(reader_, number); !status.ok()) return problem(status);
  if (Status status = page.check_layout(tree.order); !status.ok()) problem(status);
  if (page.is_leaf() != (level == depth))
    problem("page " + std::to_string(number) + " is at the wrong level of its table");
  if (page.is_leaf()) {
    ++tree.found.leaf_pages;
    visit_leaf(tree, page, bounds, on_node);
  } else {
    ++tree.found.branch_pages;
    visit_branch(tree, page, level, depth, bounds, on_node);
  }
}

void PageWalk::visit_branch(Walked& tree, const TreePage& page, int level, int depth, const Bounds& bounds,
                            const std::function<void(const Node&)>& on_node) {
  for (size_t i = 0; i < page.count(); ++i) {
    const auto node = page.branch_node(i);
    if (!node) {
      problem(node.status());
      continue;
    }
    Bounds below = bounds;
    if (i > 0) below.low = node.value().first, below.has_low = true;
    if (i + 1 < page.count())
      if (const auto after = page.branch_node(i + 1); after.ok())
        below.high = after.value().first, below.has_high = true;
    visit(tree, node.value().second, level + 1, depth, below, on_node);
  }
}

void PageWalk::visit_leaf(Walked& tree, const TreePage& page, const Bounds& bounds,
                          const std::function<void(const Node&)>& on_node) {
  for (size_t i = 0; i < page.count(); ++i) {
    const auto node = page.leaf_node(i);
    if (!node) {
      problem(node.status());
      continue;
    }
    if ((bounds.has_low && key_before(node->key, bounds.low, tree.order)) ||
        (bounds.has_high && !key_before(node->key, bounds.high, tree.order)) ||
        (tree.has_last && !key_before(tree.last_key, node->key, tree.order)))
      problem("page " + std::to_string(page.number()) + " has keys that belong elsewhere");
    tree.last_key = node->key;
    tree.has_last = true;
    ++tree.found.entries;
    if (node->overflow != kNoPage) {
      const uint64_t pages = reader_.overflow_pages(node->size);
      tree.found.overflow_pages += pages;
      if (!take(node->overflow, pages)) continue;
      if (depth_ == Depth::values)
        if (const auto value = reader_.value_of(*node); !value.ok()) {
          problem(value.status());
          continue;
        }
    }
    on_node(*node);
  }
}

}  // namespace quern
