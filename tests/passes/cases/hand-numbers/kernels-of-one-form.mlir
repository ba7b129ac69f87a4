// Two kernels that copy rows differ in lengths and pitches: these become the same parameters. The first one reads and writes with one pitch, so its offset is computed for each use.
// -p hand-numbers{smallest=true}

builtin.module {
  func.func private @move_8_f32_0(%chunk: index, %x: memref<8xf32>, %y: memref<8xf32>) {
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %c2 = arith.constant 2 : index
    %c4 = arith.constant 4 : index
    scf.for %i = %c0 to %c2 step %c1 {
      %start = arith.muli %i, %c4 : index
      scf.for %j = %c0 to %c4 step %c1 {
        %at = arith.addi %start, %j : index
        %a = memref.load %x[%at] : memref<8xf32>
        %b = math.exp %a : f32
        memref.store %b, %y[%at] : memref<8xf32>
      }
    }
    func.return
  }
  func.func private @move_18_f32_0(%chunk: index, %x: memref<15xf32>, %y: memref<18xf32>) {
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %c3 = arith.constant 3 : index
    %c5 = arith.constant 5 : index
    %c6 = arith.constant 6 : index
    scf.for %i = %c0 to %c3 step %c1 {
      %from = arith.muli %i, %c5 : index
      %to = arith.muli %i, %c6 : index
      scf.for %j = %c0 to %c5 step %c1 {
        %at = arith.addi %from, %j : index
        %a = memref.load %x[%at] : memref<15xf32>
        %b = math.exp %a : f32
        %place = arith.addi %to, %j : index
        memref.store %b, %y[%place] : memref<18xf32>
      }
    }
    func.return
  }
  tile.program @main arena 0 : i64 persistent 0 : i64 lower_bound 0 : i64 prepare {
  ^bb0:
  } body {
    %0 = tile.buffer "input" at 0 : i64 named <"x"> : memref<8xf32>
    %1 = tile.buffer "output" at 0 : i64 named <"y"> : memref<8xf32>
    %2 = tile.buffer "input" at 0 : i64 named <"u"> : memref<15xf32>
    %3 = tile.buffer "output" at 0 : i64 named <"v"> : memref<18xf32>
    tile.call @move_8_f32_0 chunks 1 : i64(%0, %1) : memref<8xf32>, memref<8xf32>
    tile.call @move_18_f32_0 chunks 1 : i64(%2, %3) : memref<15xf32>, memref<18xf32>
  }
}
// -----
builtin.module {
  func.func private @move_8_f32_0(%chunk: index, %x: memref<8xf32>, %y: memref<8xf32>) {
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %c2 = arith.constant 2 : index
    %c4 = arith.constant 4 : index
    scf.for %i = %c0 to %c2 step %c1 {
      %start = arith.muli %i, %c4 {handed = #pg.ints[1], parameters = #pg.ints[1]} : index
      %start_1 = arith.muli %i, %c4 {handed = #pg.ints[1], parameters = #pg.ints[2]} : index
      scf.for %j = %c0 to %c4 step %c1 {
        %at = arith.addi %start, %j : index
        %a = memref.load %x[%at] : memref<8xf32>
        %b = math.exp %a : f32
        %at_1 = arith.addi %start_1, %j : index
        memref.store %b, %y[%at_1] : memref<8xf32>
      } {handed = #pg.ints[1], parameters = #pg.ints[1]}
    } {handed = #pg.ints[1], parameters = #pg.ints[0]}
    func.return
  }
  func.func private @move_18_f32_0(%chunk: index, %x: memref<15xf32>, %y: memref<18xf32>) {
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %c3 = arith.constant 3 : index
    %c5 = arith.constant 5 : index
    %c6 = arith.constant 6 : index
    scf.for %i = %c0 to %c3 step %c1 {
      %from = arith.muli %i, %c5 {handed = #pg.ints[1], parameters = #pg.ints[1]} : index
      %to = arith.muli %i, %c6 {handed = #pg.ints[1], parameters = #pg.ints[2]} : index
      scf.for %j = %c0 to %c5 step %c1 {
        %at = arith.addi %from, %j : index
        %a = memref.load %x[%at] : memref<15xf32>
        %b = math.exp %a : f32
        %place = arith.addi %to, %j : index
        memref.store %b, %y[%place] : memref<18xf32>
      } {handed = #pg.ints[1], parameters = #pg.ints[1]}
    } {handed = #pg.ints[1], parameters = #pg.ints[0]}
    func.return
  }
  tile.program @main arena 0 : i64 persistent 0 : i64 lower_bound 0 : i64 prepare {
  ^bb0:
  } body {
    %0 = tile.buffer "input" at 0 : i64 named <"x"> : memref<8xf32>
    %1 = tile.buffer "output" at 0 : i64 named <"y"> : memref<8xf32>
    %2 = tile.buffer "input" at 0 : i64 named <"u"> : memref<15xf32>
    %3 = tile.buffer "output" at 0 : i64 named <"v"> : memref<18xf32>
    tile.call @move_8_f32_0 chunks 1 : i64(%0, %1) : memref<8xf32>, memref<8xf32>
    tile.call @move_18_f32_0 chunks 1 : i64(%2, %3) : memref<15xf32>, memref<18xf32>
  }
}
