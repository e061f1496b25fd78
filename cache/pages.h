// The pages of an LMDB file, read without LMDB. LMDB trusts its pages: it aborts, faults or walks in circles
// on damaged ones. Here every page is copied before it is looked at, and every number in it is checked before
// it is used, so that a file damaged in any way can be read; what does not hold is CORRUPT. The layout is
// that of LMDB's data version 1 (mdb.c of LMDB 0.9), of trees without duplicates.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cache/file_map.h"
#include "core/base/status.h"

namespace quern {

using PageNumber = uint64_t;
inline constexpr PageNumber kNoPage = ~PageNumber{0};
inline constexpr uint32_t kMaxPageBytes = 32768;
inline constexpr int kMaxTreeDepth = 32;
inline constexpr uint32_t kPageHeaderBytes = 16;

// One tree, as it lies in the file.
struct Tree {
  uint32_t pad = 0;
  uint16_t flags = 0, depth = 0;
  uint64_t branch_pages = 0, leaf_pages = 0, overflow_pages = 0, entries = 0;
  PageNumber root = kNoPage;
  uint64_t pages() const { return branch_pages + leaf_pages + overflow_pages; }
  bool operator==(const Tree&) const = default;
};
static_assert(sizeof(Tree) == 48);

// What a head page says: one committed transaction.
struct Head {
  uint64_t txn = 0;
  PageNumber last_page = 0;
  uint32_t page_bytes = 0;
  Tree free, main;  // of free pages, and of named trees
  bool operator==(const Head&) const = default;
};

// A file has two head pages, written in turns.
struct Heads {
  std::optional<Head> newest, other;
};
Heads read_heads(const FileMap& file);
// The bytes that a head page needs to be read, whatever the size of pages.
inline constexpr uint64_t kHeadsBytes = uint64_t{kMaxPageBytes} * 2;

// A value that was copied out of the file. Not a string: those write zeros before the copy.
struct Bytes {
  std::unique_ptr<char[]> data;
  size_t size = 0;
  std::string_view view() const { return {data.get(), size}; }
};

// A leaf's node. Views are into its page.
struct Node {
  std::string_view key;
  bool is_tree = false;           // the value is a Tree
  uint64_t size = 0;              // of the value
  PageNumber overflow = kNoPage;  // where the value begins, unless it is here:
  std::string_view value;
};

// How the pages of one head are found.
struct PageReader {
  const FileMap* file;
  uint32_t page_bytes;
  PageNumber last_page;

  PageReader(const FileMap& from, const Head& head)
      : file(&from), page_bytes(head.page_bytes), last_page(head.last_page) {}
  uint64_t overflow_pages(uint64_t size) const { return (kPageHeaderBytes - 1 + size) / page_bytes + 1; }
  // Values that are larger have pages of their own.
  uint64_t max_inline() const { return ((page_bytes - kPageHeaderBytes) / 2 & ~1u) - 2; }
  // That the value begins at the page, as far as the page tells.
  Status check_overflow(PageNumber at, uint64_t size) const;
  Result<Bytes> value_of(const Node& node) const;
};

// The tree of free pages has numbers as keys.
enum class KeyOrder { bytes, numbers };
bool key_before(std::string_view a, std::string_view b, KeyOrder order);

// A copy of a branch or leaf page. Its nodes are checked when they are asked for.
class TreePage {
 public:
  Status load(const PageReader& reader, PageNumber number);
  PageNumber number() const { return number_; }
  bool is_leaf() const { return is_leaf_; }
  size_t count() const { return count_; }
  Result<Node> leaf_node(size_t index) const;
  // The key (empty for the first) and the page below.
  Result<std::pair<std::string_view, PageNumber>> branch_node(size_t index) const;
  // That the nodes fill the page exactly.
  Status check_layout(KeyOrder order) const;
  // Of a branch: the child that a key is under. Of a leaf: the first node whose key is not smaller.
  Result<size_t> position_of(std::string_view key) const;

 private:
  struct RawNode {
    uint16_t low, high, flags, key_bytes;
  };
  Result<std::pair<RawNode, std::string_view>> raw_node(size_t index) const;
  template <class T>
  T number_at(size_t offset) const;

  PageNumber number_ = kNoPage;
  uint32_t page_bytes_ = 0;
  bool is_leaf_ = false;
  uint16_t lower_ = 0, upper_ = 0;
  size_t count_ = 0;
  std::unique_ptr<char[]> bytes_;
};

// Reads one tree in order of its keys. A step that does not lead to a larger key is CORRUPT, so no walk goes
// in circles.
class TreeCursor {
 public:
  TreeCursor(const PageReader& reader, const Tree& tree) : reader_(reader), tree_(tree) {}
  // To the first key that is at least `key`. The node lives until the next call; none at the end.
  Result<std::optional<Node>> seek(std::string_view key);
  Result<std::optional<Node>> next();

 private:
  struct Level {
    TreePage page;
    size_t index = 0;
  };
  Status descend(PageNumber page, const std::string_view* key);
  Result<std::optional<Node>> settle();

  const PageReader reader_;
  const Tree tree_;
  std::vector<Level> levels_;
  size_t depth_ = 0;  // levels in use
  std::string last_key_;
  bool has_last_ = false;
};

// The value under exactly this key; NOT_FOUND without a message when there is none.
Result<Bytes> find_value(const PageReader& reader, const Tree& tree, std::string_view key);
// Where it lies, without its bytes; `page` keeps what the node's views are into.
Result<Node> find_node(const PageReader& reader, const Tree& tree, std::string_view key, TreePage& page);
Result<Tree> tree_of(const Node& node);

}  // namespace quern
