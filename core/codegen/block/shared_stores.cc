#include "core/codegen/block/shared_stores.h"

#include <algorithm>

#include "core/base/dtype_info.h"

namespace quern {

SharedTile SharedStores::room_for(BlockValue store, const RegisterLayout& layout) const {
  const BlockOp& op = program_.op(store);
  SharedTile tile;
  tile.value = store;
  tile.inner = facts_.inner_dim(op);
  for (int d = 0; d < op.type.rank(); ++d) {
    const int64_t extent = op.type.shape[static_cast<size_t>(d)];
    tile.padded.push_back(
        layout.extent(d) == extent ? extent : int64_t{1} << std::max(bits_for(extent), layout.bits(d)));
  }
  return tile;
}

void SharedStores::place(SharedTile& tile) {
  shared_.put_in_panels(tile, SharedTiles::bits_of(tile, shared_.dims_by_stride(tile)));
  tile.memory = shared_buffer(ir::scalar_of(facts_.place(tile.value).dtype), tile.bytes,
                              SharedBuffer::Use::exchange, kSwizzleBytes);
}

void SharedStores::store(BlockValue store) {
  const RegisterLayout layout = values_.natural(store);
  SharedTile tile = room_for(store, layout);
  place(tile);
  fill(tile, store, layout, false);
  store_rows(tile, store);
}

void SharedStores::store_rows(const SharedTile& tile, BlockValue store) {
  const TensorPlace& place = facts_.place(store);
  const RegisterLayout blocked = facts_.blocked(store, place.dtype, tile.inner);
  const int vector = std::min(facts_.vector_bits(store, blocked, tile.inner),
                              leading_bits(blocked, tile.inner, BlockFacts::kAnyBits));
  const RegisterLayout chunks = chunks_of(blocked, vector);
  const int per = 1 << vector;
  Body body;
  Builder out(body);
  const Symbol to = memory_.tile_pointer(out, "to", store, place);
  out.when(leaders(chunks), [&](Builder& some) {
    some.unrolled("c", chunks.count(), [&](Builder& all, const Expr& c) {
      all.when(bounds_.inside(store, chunks, c), [&](Builder& each) {
        const Symbol own = fresh_registers("own", tile.memory->type, per);
        each.declare(own);
        each.emit(Instr::load_shared,
                  {ir::address(own, 0), ir::address(tile.memory, shared_.place_in(tile, chunks, c))},
                  {tile.memory->type, per});
        each.store(Instr::store_global, ir::address(to, bounds_.offset(chunks, place.strides, c)),
                   tile.memory->type, per, [&](Builder&, const Expr& j) { return ir::element(own, j); });
      });
    });
  });
  text(now()) += std::move(body);
}

void SharedStores::fill(const SharedTile& tile, BlockValue store, const RegisterLayout& natural,
                        bool by_tma) {
  const TensorPlace& place = facts_.place(store);
  const BlockValue source = program_.op(store).operands[0];
  const DType type = register_type(place.dtype);
  RegisterLayout layout = natural;
  const int vector = facts_.vector_bits(store, layout, tile.inner);
  put_first(layout, tile.inner, 0, vector);
  const RegisterLayout chunks = chunks_of(layout, vector);
  const int per = 1 << vector;
  auto number_of = [&](const RegisterLayout& registers, const Expr& r) {
    return ir::rounded(ir::converted(values_.element(source, registers, r), type), place.dtype);
  };
  Body body;
  Builder out(body);
  out.when(leaders(natural), [&](Builder& some) {
    if (shared_.write_matrices(some, tile, natural, [&](const Expr& r) { return number_of(natural, r); }))
      return;
    some.unrolled("c", chunks.count(), [&](Builder& each, const Expr& c) {
      const Expr at = shared_.place_in(tile, chunks, c);
      if (vector == 0) return each.assign(ir::element(tile.memory, at), number_of(layout, c));
      each.store(Instr::store_shared, ir::address(tile.memory, at), tile.memory->type, per,
                 [&](Builder& one, const Expr& j) { return number_of(layout, one.named("r", c * per + j)); });
    });
  });
  if (by_tma) out.emit(Instr::fence_async);
  text(now()) += std::move(body);
}

}  // namespace quern
