#include "cache/pages.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace quern {

namespace {

constexpr uint32_t kMagic = 0xBEEFC0DE, kDataVersion = 1;
constexpr uint16_t kBranch = 1, kLeaf = 2, kOverflow = 4, kMeta = 8;  // flags of pages
constexpr uint16_t kBigData = 1, kSubData = 2;                        // flags of nodes
// Flags of the tree of free pages: its keys are numbers, and the file is no directory.
constexpr uint16_t kIntegerKey = 8, kOneFile = 0x4000;
constexpr size_t kNodeHeaderBytes = 8;

// A head page behind its page header.
struct RawHead {
  uint32_t magic, version;
  uint64_t address, map_bytes;
  Tree free, main;
  uint64_t last_page, txn;
};
static_assert(sizeof(RawHead) == 136);

struct PageHeader {
  uint64_t number;
  uint16_t pad, flags, lower, upper;
  uint32_t overflow_pages() const { return uint32_t{lower} | uint32_t{upper} << 16; }
};
static_assert(sizeof(PageHeader) == kPageHeaderBytes);

Status corrupt(PageNumber page, const char* what) {
  return Status(ErrorCode::CORRUPT, "page " + std::to_string(page) + " of the cache is damaged: " + what);
}

std::optional<Head> read_head(const FileMap& file, uint64_t at, uint64_t number) {
  struct {
    PageHeader page;
    RawHead head;
  } raw;
  if (!file.read(at, sizeof raw, &raw)) return {};
  const uint32_t page_bytes = raw.head.free.pad;
  if (raw.page.number != number || raw.page.flags != kMeta || raw.head.magic != kMagic ||
      raw.head.version != kDataVersion || raw.head.address != 0 || raw.head.main.flags != 0 ||
      (raw.head.free.flags & ~kOneFile) != kIntegerKey || !std::has_single_bit(page_bytes) ||
      page_bytes < 512 || page_bytes > kMaxPageBytes || raw.head.last_page < 1 ||
      raw.head.last_page >= uint64_t{1} << 47)
    return {};
  return Head{raw.head.txn, raw.head.last_page, page_bytes, raw.head.free, raw.head.main};
}

}  // namespace

Heads read_heads(const FileMap& file) {
  std::optional<Head> first = read_head(file, 0, 0), second;
  if (first) {
    second = read_head(file, first->page_bytes, 1);
  } else {
    // The first head page knew where the second one is.
    for (uint32_t size = 512; !second && size <= kMaxPageBytes; size *= 2) {
      second = read_head(file, size, 1);
      if (second && second->page_bytes != size) second.reset();
    }
  }
  if (first && second && first->page_bytes != second->page_bytes) second.reset();
  if (!first || (second && second->txn > first->txn)) std::swap(first, second);
  return {std::move(first), std::move(second)};
}

Status PageReader::check_overflow(PageNumber at, uint64_t size) const {
  const uint64_t pages = overflow_pages(size);
  if (at < 2 || at > last_page || pages > last_page - at + 1)
    return corrupt(at, "a value lies outside of the file");
  PageHeader header;
  if (!file->read(at * page_bytes, sizeof header, &header)) return corrupt(at, "it cannot be read");
  if (header.number != at || header.flags != kOverflow || header.overflow_pages() != pages)
    return corrupt(at, "it is not the first page of the value that should be there");
  return {};
}

Result<Bytes> PageReader::value_of(const Node& node) const {
  const bool inside = node.overflow == kNoPage;
  if (Status status = inside ? Status() : check_overflow(node.overflow, node.size); !status.ok())
    return status;
  Bytes value{std::make_unique_for_overwrite<char[]>(node.size), node.size};
  if (inside)
    node.value.copy(value.data.get(), node.size);
  else if (!file->read(node.overflow * page_bytes + kPageHeaderBytes, node.size, value.data.get()))
    return corrupt(node.overflow, "the value in it cannot be read");
  return value;
}

template <class T>
T TreePage::number_at(size_t offset) const {
  T value;
  std::memcpy(&value, bytes_.get() + offset, sizeof value);
  return value;
}

Status TreePage::load(const PageReader& reader, PageNumber number) {
  number_ = number;
  page_bytes_ = reader.page_bytes;
  count_ = 0;
  if (number < 2 || number > reader.last_page) return corrupt(number, "there is no such page");
  if (!bytes_) bytes_ = std::make_unique_for_overwrite<char[]>(kMaxPageBytes);
  if (!reader.file->read(number * page_bytes_, page_bytes_, bytes_.get()))
    return corrupt(number, "it cannot be read");
  PageHeader header;
  std::memcpy(&header, bytes_.get(), sizeof header);
  if (header.number != number) return corrupt(number, "it has another page's number");
  if (header.flags != kBranch && header.flags != kLeaf) return corrupt(number, "it is no page of a tree");
  is_leaf_ = header.flags == kLeaf;
  lower_ = header.lower;
  upper_ = header.upper;
  if (lower_ < kPageHeaderBytes + 2 || lower_ % 2 != 0 || lower_ > upper_ || upper_ > page_bytes_)
    return corrupt(number, "its bounds do not hold");
  count_ = (lower_ - kPageHeaderBytes) / 2;
  return {};
}

Result<std::pair<TreePage::RawNode, std::string_view>> TreePage::raw_node(size_t index) const {
  check(index < count_, "a node of the page");
  const size_t at = number_at<uint16_t>(kPageHeaderBytes + index * 2);
  if (at < upper_ || at % 2 != 0 || at + kNodeHeaderBytes > page_bytes_)
    return corrupt(number_, "a node lies outside of it");
  const RawNode raw = number_at<RawNode>(at);
  if (at + kNodeHeaderBytes + raw.key_bytes > page_bytes_)
    return corrupt(number_, "a key reaches beyond its end");
  return std::pair(raw, std::string_view(bytes_.get() + at + kNodeHeaderBytes, raw.key_bytes));
}

Result<Node> TreePage::leaf_node(size_t index) const {
  const auto found = raw_node(index);
  if (!found) return found.status();
  const auto& [raw, key] = found.value();
  if (raw.flags != 0 && raw.flags != kBigData && raw.flags != kSubData)
    return corrupt(number_, "a node is of no known kind");
  Node node;
  node.key = key;
  node.size = uint32_t{raw.low} | uint32_t{raw.high} << 16;
  node.is_tree = raw.flags == kSubData;
  const size_t at = static_cast<size_t>(key.data() + key.size() - bytes_.get());
  const size_t inside = raw.flags == kBigData ? sizeof(PageNumber) : node.size;
  if (inside > page_bytes_ - at) return corrupt(number_, "a value reaches beyond its end");
  if (raw.flags == kBigData)
    node.overflow = number_at<PageNumber>(at);
  else
    node.value = {bytes_.get() + at, node.size};
  return node;
}

Result<std::pair<std::string_view, PageNumber>> TreePage::branch_node(size_t index) const {
  const auto found = raw_node(index);
  if (!found) return found.status();
  const auto& [raw, key] = found.value();
  return std::pair(key, uint64_t{raw.low} | uint64_t{raw.high} << 16 | uint64_t{raw.flags} << 32);
}

bool key_before(std::string_view a, std::string_view b, KeyOrder order) {
  if (order == KeyOrder::bytes) return a < b;
  const auto number = [](std::string_view key) {
    uint64_t value = 0;
    std::memcpy(&value, key.data(), std::min(key.size(), sizeof value));
    return value;
  };
  return number(a) < number(b);
}

Status TreePage::check_layout(KeyOrder order) const {
  size_t used = 0;
  std::string_view last;
  for (size_t i = 0; i < count_; ++i) {
    const auto raw = raw_node(i);
    if (!raw) return raw.status();
    const std::string_view key = raw.value().second;
    size_t bytes = kNodeHeaderBytes + key.size();
    if (is_leaf_) {
      const auto node = leaf_node(i);
      if (!node) return node.status();
      bytes += node->overflow != kNoPage ? sizeof(PageNumber) : node->size;
    }
    used += bytes + bytes % 2;
    // The first key of a branch is never looked at.
    if (i > (is_leaf_ ? 0 : 1) && !key_before(last, key, order))
      return corrupt(number_, "its keys are not in order");
    last = key;
  }
  return used == page_bytes_ - upper_ ? Status() : corrupt(number_, "its nodes do not fill it");
}

Result<size_t> TreePage::position_of(std::string_view key) const {
  // Branches: the last child whose key is not larger; the first child has no key.
  size_t low = is_leaf_ ? 0 : 1, high = count_;
  while (low < high) {
    const size_t middle = (low + high) / 2;
    const auto raw = raw_node(middle);
    if (!raw) return raw.status();
    const std::string_view at = raw.value().second;
    if (is_leaf_ ? at < key : at <= key)
      low = middle + 1;
    else
      high = middle;
  }
  return is_leaf_ ? low : low - 1;
}

// To the leaf where `key` would be, or to the first leaf below.
Status TreeCursor::descend(PageNumber page, const std::string_view* key) {
  for (;;) {
    if (depth_ >= kMaxTreeDepth) return corrupt(page, "its tree is too deep");
    if (levels_.size() == depth_) levels_.emplace_back();
    Level& level = levels_[depth_++];
    level.index = 0;
    if (Status status = level.page.load(reader_, page); !status.ok()) return status;
    if (key) {
      const auto at = level.page.position_of(*key);
      if (!at) return at.status();
      level.index = *at;
    }
    if (level.page.is_leaf()) return {};
    const auto child = level.page.branch_node(level.index);
    if (!child) return child.status();
    page = child.value().second;
  }
}

// The node at the place, or the first one after it.
Result<std::optional<Node>> TreeCursor::settle() {
  while (depth_ > 0 && levels_[depth_ - 1].index >= levels_[depth_ - 1].page.count()) {
    if (--depth_ == 0) return std::optional<Node>();
    Level& above = levels_[depth_ - 1];
    if (++above.index >= above.page.count()) continue;
    const auto child = above.page.branch_node(above.index);
    if (!child) return child.status();
    if (Status status = descend(child.value().second, nullptr); !status.ok()) return status;
  }
  if (depth_ == 0) return std::optional<Node>();
  const Level& leaf = levels_[depth_ - 1];
  auto node = leaf.page.leaf_node(leaf.index);
  if (!node) return node.status();
  if (has_last_ && !(last_key_ < node->key)) return corrupt(leaf.page.number(), "its keys are not in order");
  last_key_ = node->key;
  has_last_ = true;
  return std::optional<Node>(*node);
}

Result<std::optional<Node>> TreeCursor::seek(std::string_view key) {
  depth_ = 0;
  has_last_ = false;
  if (tree_.root == kNoPage) return std::optional<Node>();
  if (Status status = descend(tree_.root, &key); !status.ok()) return status;
  return settle();
}

Result<std::optional<Node>> TreeCursor::next() {
  if (depth_ == 0) return std::optional<Node>();
  ++levels_[depth_ - 1].index;
  return settle();
}

Result<Node> find_node(const PageReader& reader, const Tree& tree, std::string_view key, TreePage& page) {
  PageNumber at = tree.root;
  for (int depth = 0; at != kNoPage && depth < kMaxTreeDepth; ++depth) {
    if (Status status = page.load(reader, at); !status.ok()) return status;
    const auto index = page.position_of(key);
    if (!index) return index.status();
    if (!page.is_leaf()) {
      const auto child = page.branch_node(*index);
      if (!child) return child.status();
      at = child.value().second;
      continue;
    }
    if (*index >= page.count()) break;
    auto node = page.leaf_node(*index);
    if (!node) return node.status();
    if (node->key != key) break;
    return node;
  }
  if (at != kNoPage && !page.is_leaf()) return corrupt(at, "its tree is too deep");
  return Status(ErrorCode::NOT_FOUND, {});
}

Result<Bytes> find_value(const PageReader& reader, const Tree& tree, std::string_view key) {
  TreePage page;
  const auto node = find_node(reader, tree, key, page);
  if (!node) return node.status();
  return reader.value_of(*node);
}

Result<Tree> tree_of(const Node& node) {
  Tree tree;
  if (!node.is_tree || node.value.size() != sizeof tree)
    return Status(ErrorCode::CORRUPT, "a table of the cache is damaged: it is no tree");
  std::memcpy(&tree, node.value.data(), sizeof tree);
  if (tree.flags != 0 || tree.pad != 0)
    return Status(ErrorCode::CORRUPT, "a table of the cache is damaged: it is of another kind");
  return tree;
}

}  // namespace quern
