// Transactions (database.h): reads go to the pages of a snapshot, changes are gathered until they are
// committed.
#include <algorithm>

#include "cache/database.h"

namespace quern {

namespace {

constexpr int kWalkChunk = 128;            // records a transaction
constexpr uint64_t kNodeOverhead = 8 + 2;  // of a record in its page: header and place

}  // namespace

Result<Txn> Txn::begin(Database& database, Mode mode) {
  auto snapshot = database.current();
  if (!snapshot) return Status(ErrorCode::IO, "the cache could not be opened again after a failure");
  return Txn(database, std::move(snapshot), mode);
}

Status Txn::fail(const Status& why) {
  if (why.code() == ErrorCode::NOT_FOUND) return why;
  broken_ = true;
  return why;
}

const Tree* Txn::tree(Table table) const {
  const auto& tree = snapshot_->tables[static_cast<int>(table)];
  return tree ? &*tree : nullptr;
}

Result<std::string_view> Txn::get(Table table, std::string_view key) {
  if (mode_ == Mode::write) {
    const Changes& changed = changes(table);
    if (const auto found = changed.find(key); found != changed.end()) {
      if (!found->second) return Status(ErrorCode::NOT_FOUND, {});
      // The change itself may be changed again while the view lives.
      const std::string& changed_to = *found->second;
      Bytes& copy = values_.emplace_back(
          Bytes{std::make_unique_for_overwrite<char[]>(changed_to.size()), changed_to.size()});
      changed_to.copy(copy.data.get(), copy.size);
      return copy.view();
    }
  }
  const Tree* from = tree(table);
  if (!from) return Status(ErrorCode::NOT_FOUND, {});
  const PageReader reader = snapshot_->reader();
  const auto node = find_node(reader, *from, key, page_);
  if (!node) return fail(node.status());
  auto value = reader.value_of(*node);
  if (!value) return fail(value.status());
  return values_.emplace_back(std::move(*value)).view();
}

int64_t Txn::bytes_of(uint64_t key_bytes, uint64_t value_bytes) const {
  const PageReader reader = snapshot_->reader();
  const uint64_t inside = key_bytes + value_bytes + kNodeOverhead;
  if (inside <= reader.max_inline()) return static_cast<int64_t>(inside);
  return static_cast<int64_t>(key_bytes + 8 + kNodeOverhead +
                              reader.overflow_pages(value_bytes) * reader.page_bytes);
}

// What stands under the key is looked at first: LMDB would believe what its pages say of how much to free.
Status Txn::change(Table table, std::string_view key, std::optional<std::string> value) {
  check(mode_ == Mode::write, "the transaction may write");
  Changes& changed = changes(table);
  const auto old = changed.find(key);
  bool was_there = false;
  if (old != changed.end()) {
    was_there = old->second.has_value();
    if (was_there) changed_bytes_ -= bytes_of(key.size(), old->second->size());
  } else if (const Tree* from = tree(table)) {
    const PageReader reader = snapshot_->reader();
    const auto node = find_node(reader, *from, key, page_);
    if (!node.ok() && node.status().code() != ErrorCode::NOT_FOUND) return fail(node.status());
    was_there = node.ok();
    if (was_there) {
      if (node.value().overflow != kNoPage)
        if (Status status = reader.check_overflow(node.value().overflow, node.value().size); !status.ok())
          return fail(status);
      changed_bytes_ -= bytes_of(key.size(), node.value().size);
    }
  }
  if (!value && !was_there && old == changed.end()) return {};
  if (value) changed_bytes_ += bytes_of(key.size(), value->size());
  changed.insert_or_assign(std::string(key), std::move(value));
  return {};
}

Status Txn::put(Table table, std::string_view key, std::string_view value) {
  return change(table, key, std::string(value));
}

Status Txn::remove(Table table, std::string_view key) { return change(table, key, std::nullopt); }

Status Txn::scan(Table table, std::string_view from,
                 const std::function<bool(std::string_view key, std::string_view value)>& visit) {
  const PageReader reader = snapshot_->reader();
  const Tree* source = tree(table);
  TreeCursor cursor(reader, source ? *source : Tree());
  auto node = cursor.seek(from);
  const Changes& changed = changes(table);
  auto change = changed.lower_bound(from);
  for (;;) {
    if (!node) return fail(node.status());
    const bool in_file = node->has_value(), in_changes = change != changed.end();
    if (!in_file && !in_changes) return {};
    const int order = !in_file ? 1 : !in_changes ? -1 : node.value()->key.compare(change->first);
    if (order < 0) {
      const auto value = reader.value_of(*node.value());
      if (!value) return fail(value.status());
      if (!visit(node.value()->key, value->view())) return {};
      node = cursor.next();
      continue;
    }
    if (order == 0) node = cursor.next();  // what was changed hides it
    if (change->second && !visit(change->first, *change->second)) return {};
    ++change;
  }
}

uint64_t Txn::count(Table table) const {
  const Tree* from = tree(table);
  return from ? from->entries : 0;
}

uint64_t Txn::live_bytes() const {
  int64_t bytes = changed_bytes_;
  for (Table table : kAllTables)
    if (const Tree* from = tree(table))
      bytes += static_cast<int64_t>(from->pages() * snapshot_->head.page_bytes);
  return static_cast<uint64_t>(std::max<int64_t>(bytes, 0));
}

Status Txn::commit(int fault) {
  if (fault != 0) return fail(storage_error(fault, "cannot commit to " + database_->path()));
  Batch batch;
  for (Table table : kAllTables)
    for (auto& [key, value] : changes(table)) batch.writes.push_back({table, key, std::move(value)});
  if (batch.writes.empty()) return {};
  return database_->commit(*snapshot_, std::move(batch));
}

Status walk(Database& database, Table table,
            const std::function<bool(Txn& txn, std::string_view key, std::string_view value)>& visit,
            std::string next) {
  for (bool more = true; more;) {
    auto txn = Txn::begin(database, Txn::Mode::read);
    if (!txn) return txn.status();
    more = false;
    int left = kWalkChunk;
    const Status status = txn->scan(table, next, [&](std::string_view key, std::string_view value) {
      if (!visit(*txn, key, value)) return false;
      if (--left > 0) return true;
      next.assign(key).push_back('\0');  // the smallest key after this one
      more = true;
      return false;
    });
    if (!status.ok()) return status;
  }
  return {};
}

}  // namespace quern
