// Winograd tiles of 2x2 results: the last tiles end with the image, and the last panel is partial.
#map = affine_map<(d0, d1, d2) -> ((d2 floordiv 4), d0, d1, (d2 mod 4))>
#map1 = affine_map<(d0, d1, d2, d3) -> (d0, d1, d3)>
#map2 = affine_map<(d0, d1, d2, d3) -> (d0, d3, d2)>
#map3 = affine_map<(d0, d1, d2, d3) -> (d3)>
#layout = #tile.layout<#map, #pg.ints[2, 16, 2, 4]>
!tensor = tensor<16x2x5xf32, #layout>
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x">, #pg.bytes<"u">, #pg.bytes<"bias">] {
  ^bb0(%x: tensor<1x5x6x2xf32>, %u: tensor<16x2x5xf32>, %bias: tensor<5xf32>):
    %p = tile.pack %u : tensor<16x2x5xf32> -> !tensor
    %y = tile.fused ins(%x, %p, %bias : tensor<1x5x6x2xf32>, !tensor, tensor<5xf32>) domain [4, 5] steps [3, 4]
        loops [#pg.ints[0], #pg.ints[1, 2], #pg.ints[0, 1]] {
    ^bb0(%0: tensor<1x5x6x2xf32>, %1: !tensor, %2: tensor<5xf32>):
      %3 = tile.transform_tiles %0 : tensor<1x5x6x2xf32> images [1, 3, 4] offset [0, 0] size 2 : i64
          matrix <[1.0, 0.0, -1.0, 0.0], [0.0, 1.0, 1.0, 0.0], [0.0, -1.0, 1.0, 0.0], [0.0, 1.0, 0.0, -1.0]> -> tensor<16x4x2xf32>
      %4 = tile.reduce ins(%3, %1 : tensor<16x4x2xf32>, !tensor) domain [16, 4, 5, 2] parallel 3 : i64
          maps [#map1, #map2] epilogue_maps [] product f32
          schedule <n_dim 2, n_vectors 1, m_dim 1, mr 2, kc 64, lanes 4> epilogue {
      ^bb0(%5: f32):
        tile.yield %5 : f32
      } -> tensor<16x4x5xf32>
      %y_1 = tile.transform_tiles %4 : tensor<16x4x5xf32> epilogue_inputs(%2 : tensor<5xf32>) images [1, 3, 4]
          size 2 : i64 matrix <[1.0, 1.0, 1.0, 0.0], [0.0, 1.0, -1.0, -1.0]> epilogue_maps [#map3] epilogue {
      ^bb0(%6: f32, %7: f32):
        %8 = arith.addf %6, %7 : f32
        tile.yield %8 : f32
      } -> tensor<1x3x4x5xf32>
      tile.yield %y_1 : tensor<1x3x4x5xf32>
    } -> tensor<1x3x4x5xf32>
    pg.return [#pg.bytes<"y">], %y : tensor<1x3x4x5xf32>
  }
}
// -----
#map = affine_map<(d0, d1, d2) -> ((d2 floordiv 4), d0, d1, (d2 mod 4))>
#layout = #tile.layout<#map, #pg.ints[2, 16, 2, 4]>
builtin.module {
  func.func private @move_256_f32_0(%0: index, %1: memref<160xf32>, %2: memref<256xf32>) {
    %3 = arith.constant 0 : index
    %4 = arith.constant 32 : index
    %5 = arith.constant 1 : index
    %6 = arith.constant 5 : index
    %7 = arith.constant 4 : index
    scf.for %8 = %3 to %4 step %5 {
      %9 = arith.muli %8, %6 : index
      %10 = vector.load %1[%9] : memref<160xf32>, vector<4xf32>
      %11 = arith.muli %8, %7 : index
      vector.store %10, %2[%11] : memref<256xf32>, vector<4xf32>
    }
    %12 = arith.constant 128 : index
    scf.for %13 = %3 to %4 step %5 {
      %14 = arith.muli %13, %6 : index
      %15 = arith.addi %14, %7 : index
      %16 = memref.load %1[%15] : memref<160xf32>
      %17 = arith.muli %13, %7 : index
      %18 = arith.addi %17, %12 : index
      memref.store %16, %2[%18] : memref<256xf32>
    }
    %19 = arith.constant 0.000000e+00 : f32
    %20 = arith.constant 3 : index
    %21 = arith.constant 129 : index
    scf.for %22 = %3 to %4 step %5 {
      %23 = arith.muli %22, %7 : index
      scf.for %24 = %3 to %20 step %5 {
        %25 = arith.addi %23, %24 : index
        %26 = arith.addi %25, %21 : index
        memref.store %19, %2[%26] : memref<256xf32>
      }
    }
    func.return
  }
  func.func private @addf_subf_mulf_60_f32_0(%0: index, %1: memref<60xf32>, %2: memref<256xf32>, %3: memref<5xf32>, %4: memref<60xf32>) {
    %5 = memref.alloca() : memref<256xf32>
    %6 = memref.alloca() : memref<768xf32>
    %7 = arith.constant 0 : index
    %8 = arith.constant 2 : index
    %9 = arith.constant 1 : index
    %10 = arith.constant 3 : index
    %11 = arith.constant 12 : index
    %12 = arith.constant 4 : index
    %13 = arith.constant 6 : index
    %14 = arith.constant 14 : index
    %15 = arith.constant 16 : index
    %16 = arith.constant 18 : index
    %17 = arith.constant 24 : index
    %18 = arith.constant 26 : index
    %19 = arith.constant 28 : index
    %20 = arith.constant 30 : index
    %21 = arith.constant 36 : index
    %22 = arith.constant 38 : index
    %23 = arith.constant 40 : index
    %24 = arith.constant 42 : index
    %25 = arith.constant 48 : index
    %26 = arith.constant 96 : index
    %27 = arith.constant 144 : index
    %28 = arith.constant 192 : index
    %29 = arith.constant 240 : index
    %30 = arith.constant 288 : index
    %31 = arith.constant 336 : index
    %32 = arith.constant 384 : index
    %33 = arith.constant 432 : index
    %34 = arith.constant 480 : index
    %35 = arith.constant 528 : index
    %36 = arith.constant 576 : index
    %37 = arith.constant 624 : index
    %38 = arith.constant 672 : index
    %39 = arith.constant 720 : index
    %40 = memref.alloca() : memref<8xf32>
    %41 = arith.constant 0.000000e+00 : f32
    %42 = arith.constant 8 : index
    %43 = memref.alloca() : memref<4xf32>
    %44 = arith.constant 32 : index
    %45 = arith.constant -3 : index
    %46 = arith.constant 64 : index
    %47 = arith.constant 80 : index
    %48 = arith.constant 112 : index
    %49 = arith.constant 128 : index
    %50 = arith.constant 160 : index
    %51 = arith.constant 176 : index
    %52 = arith.constant 208 : index
    %53 = arith.constant 224 : index
    %54 = arith.constant 20 : index
    %55 = arith.constant 10 : index
    %56 = arith.constant 5 : index
    %57 = arith.constant 25 : index
    %58 = memref.alloca() : memref<8xf32>
    %59 = memref.alloca() : memref<4xf32>
    %60 = arith.constant 9 : index
    %61 = arith.constant 29 : index
    scf.for %62 = %7 to %8 step %9 {
      %63 = arith.muli %62, %10 : index
      scf.for %64 = %7 to %10 step %9 {
        %65 = arith.addi %63, %64 : index
        %66 = arith.minsi %65, %10 : index
        %67 = arith.divsi %66, %8 : index
        %68 = arith.remsi %66, %8 : index
        %69 = arith.muli %67, %8 : index
        %70 = arith.minsi %69, %9 : index
        %71 = arith.muli %70, %11 : index
        %72 = arith.muli %68, %12 : index
        %73 = arith.addi %71, %72 : index
        %74 = vector.load %1[%73] : memref<60xf32>, vector<2xf32>
        %75 = arith.addi %73, %8 : index
        %76 = vector.load %1[%75] : memref<60xf32>, vector<2xf32>
        %77 = arith.addi %73, %12 : index
        %78 = vector.load %1[%77] : memref<60xf32>, vector<2xf32>
        %79 = arith.addi %73, %13 : index
        %80 = vector.load %1[%79] : memref<60xf32>, vector<2xf32>
        %81 = arith.addi %73, %11 : index
        %82 = vector.load %1[%81] : memref<60xf32>, vector<2xf32>
        %83 = arith.addi %73, %14 : index
        %84 = vector.load %1[%83] : memref<60xf32>, vector<2xf32>
        %85 = arith.addi %73, %15 : index
        %86 = vector.load %1[%85] : memref<60xf32>, vector<2xf32>
        %87 = arith.addi %73, %16 : index
        %88 = vector.load %1[%87] : memref<60xf32>, vector<2xf32>
        %89 = arith.addi %73, %17 : index
        %90 = vector.load %1[%89] : memref<60xf32>, vector<2xf32>
        %91 = arith.addi %73, %18 : index
        %92 = vector.load %1[%91] : memref<60xf32>, vector<2xf32>
        %93 = arith.addi %73, %19 : index
        %94 = vector.load %1[%93] : memref<60xf32>, vector<2xf32>
        %95 = arith.addi %73, %20 : index
        %96 = vector.load %1[%95] : memref<60xf32>, vector<2xf32>
        %97 = arith.addi %73, %21 : index
        %98 = vector.load %1[%97] : memref<60xf32>, vector<2xf32>
        %99 = arith.addi %73, %22 : index
        %100 = vector.load %1[%99] : memref<60xf32>, vector<2xf32>
        %101 = arith.addi %73, %23 : index
        %102 = vector.load %1[%101] : memref<60xf32>, vector<2xf32>
        %103 = arith.addi %73, %24 : index
        %104 = vector.load %1[%103] : memref<60xf32>, vector<2xf32>
        %105 = arith.addf %90, %82 : vector<2xf32>
        %106 = arith.subf %90, %82 : vector<2xf32>
        %107 = arith.subf %74, %90 : vector<2xf32>
        %108 = arith.subf %82, %98 : vector<2xf32>
        %109 = arith.addf %92, %84 : vector<2xf32>
        %110 = arith.subf %92, %84 : vector<2xf32>
        %111 = arith.subf %76, %92 : vector<2xf32>
        %112 = arith.subf %84, %100 : vector<2xf32>
        %113 = arith.addf %94, %86 : vector<2xf32>
        %114 = arith.subf %94, %86 : vector<2xf32>
        %115 = arith.subf %78, %94 : vector<2xf32>
        %116 = arith.subf %86, %102 : vector<2xf32>
        %117 = arith.addf %96, %88 : vector<2xf32>
        %118 = arith.subf %96, %88 : vector<2xf32>
        %119 = arith.subf %80, %96 : vector<2xf32>
        %120 = arith.subf %88, %104 : vector<2xf32>
        %121 = arith.addf %115, %111 : vector<2xf32>
        %122 = arith.subf %115, %111 : vector<2xf32>
        %123 = arith.subf %107, %115 : vector<2xf32>
        %124 = arith.subf %111, %119 : vector<2xf32>
        %125 = arith.addf %113, %109 : vector<2xf32>
        %126 = arith.subf %113, %109 : vector<2xf32>
        %127 = arith.subf %105, %113 : vector<2xf32>
        %128 = arith.subf %109, %117 : vector<2xf32>
        %129 = arith.addf %114, %110 : vector<2xf32>
        %130 = arith.subf %114, %110 : vector<2xf32>
        %131 = arith.subf %106, %114 : vector<2xf32>
        %132 = arith.subf %110, %118 : vector<2xf32>
        %133 = arith.addf %116, %112 : vector<2xf32>
        %134 = arith.subf %116, %112 : vector<2xf32>
        %135 = arith.subf %108, %116 : vector<2xf32>
        %136 = arith.subf %112, %120 : vector<2xf32>
        %137 = arith.muli %64, %15 : index
        vector.store %123, %6[%137] : memref<768xf32>, vector<2xf32>
        %138 = arith.addi %137, %25 : index
        vector.store %121, %6[%138] : memref<768xf32>, vector<2xf32>
        %139 = arith.addi %137, %26 : index
        vector.store %122, %6[%139] : memref<768xf32>, vector<2xf32>
        %140 = arith.addi %137, %27 : index
        vector.store %124, %6[%140] : memref<768xf32>, vector<2xf32>
        %141 = arith.addi %137, %28 : index
        vector.store %127, %6[%141] : memref<768xf32>, vector<2xf32>
        %142 = arith.addi %137, %29 : index
        vector.store %125, %6[%142] : memref<768xf32>, vector<2xf32>
        %143 = arith.addi %137, %30 : index
        vector.store %126, %6[%143] : memref<768xf32>, vector<2xf32>
        %144 = arith.addi %137, %31 : index
        vector.store %128, %6[%144] : memref<768xf32>, vector<2xf32>
        %145 = arith.addi %137, %32 : index
        vector.store %131, %6[%145] : memref<768xf32>, vector<2xf32>
        %146 = arith.addi %137, %33 : index
        vector.store %129, %6[%146] : memref<768xf32>, vector<2xf32>
        %147 = arith.addi %137, %34 : index
        vector.store %130, %6[%147] : memref<768xf32>, vector<2xf32>
        %148 = arith.addi %137, %35 : index
        vector.store %132, %6[%148] : memref<768xf32>, vector<2xf32>
        %149 = arith.addi %137, %36 : index
        vector.store %135, %6[%149] : memref<768xf32>, vector<2xf32>
        %150 = arith.addi %137, %37 : index
        vector.store %133, %6[%150] : memref<768xf32>, vector<2xf32>
        %151 = arith.addi %137, %38 : index
        vector.store %134, %6[%151] : memref<768xf32>, vector<2xf32>
        %152 = arith.addi %137, %39 : index
        vector.store %136, %6[%152] : memref<768xf32>, vector<2xf32>
      }
      scf.for %153 = %7 to %15 step %9 {
        %154 = arith.muli %153, %25 : index
        %155 = arith.muli %153, %42 : index
        scf.for %156 = %7 to %8 step %9 {
          %157 = arith.muli %156, %12 : index
          %158 = arith.muli %156, %15 : index
          %159 = arith.addi %154, %158 : index
          scf.for %160 = %7 to %12 step %9 {
            %161 = arith.addi %157, %160 : index
            memref.store %41, %40[%161] : memref<8xf32>
            %162 = arith.addi %155, %160 : index
            scf.for %163 = %7 to %8 step %9 {
              %164 = arith.addi %159, %163 : index
              %165 = memref.load %6[%164] : memref<768xf32>
              %166 = arith.muli %163, %12 : index
              %167 = arith.addi %162, %166 : index
              %168 = memref.load %2[%167] : memref<256xf32>
              %169 = memref.load %40[%161] : memref<8xf32>
              %170 = arith.mulf %165, %168 : f32
              %171 = arith.addf %169, %170 : f32
              memref.store %171, %40[%161] : memref<8xf32>
            } {prefetch = #tile.prefetch_next<argument 2, elements 8, lanes 4, share 2, lines 1, loops 1>}
          } {interchange, vectorize = array<i64: 4>}
        } {unroll, interchange}
        %172 = arith.muli %153, %15 : index
        scf.for %173 = %7 to %8 step %9 {
          %174 = arith.muli %173, %12 : index
          %175 = arith.addi %172, %174 : index
          scf.for %176 = %7 to %12 step %9 {
            %177 = arith.addi %174, %176 : index
            %178 = memref.load %40[%177] : memref<8xf32>
            %179 = arith.addi %175, %176 : index
            memref.store %178, %5[%179] : memref<256xf32>
          } {vectorize = array<i64: 4>}
        } {unroll}
        scf.for %180 = %7 to %12 step %9 {
          memref.store %41, %43[%180] : memref<4xf32>
          %181 = arith.addi %155, %180 : index
          scf.for %182 = %7 to %8 step %9 {
            %183 = arith.addi %154, %182 : index
            %184 = arith.addi %183, %44 : index
            %185 = memref.load %6[%184] : memref<768xf32>
            %186 = arith.muli %182, %12 : index
            %187 = arith.addi %181, %186 : index
            %188 = memref.load %2[%187] : memref<256xf32>
            %189 = memref.load %43[%180] : memref<4xf32>
            %190 = arith.mulf %185, %188 : f32
            %191 = arith.addf %189, %190 : f32
            memref.store %191, %43[%180] : memref<4xf32>
          } {prefetch = #tile.prefetch_next<argument 2, elements 8, lanes 4, share 2, lines 1, loops 1, first 4>}
        } {interchange, vectorize = array<i64: 4>}
        scf.for %192 = %7 to %12 step %9 {
          %193 = memref.load %43[%192] : memref<4xf32>
          %194 = arith.addi %172, %192 : index
          %195 = arith.addi %194, %42 : index
          memref.store %193, %5[%195] : memref<256xf32>
        } {vectorize = array<i64: 4>}
      }
      %196 = arith.muli %62, %45 : index
      %197 = arith.addi %196, %12 : index
      %198 = arith.minsi %197, %10 : index
      scf.for %199 = %7 to %198 step %9 {
        %200 = arith.addi %63, %199 : index
        %201 = arith.divsi %200, %8 : index
        %202 = arith.remsi %200, %8 : index
        %203 = arith.muli %201, %8 : index
        %204 = arith.minsi %203, %9 : index
        %205 = arith.muli %199, %12 : index
        %206 = vector.load %5[%205] : memref<256xf32>, vector<4xf32>
        %207 = arith.addi %205, %15 : index
        %208 = vector.load %5[%207] : memref<256xf32>, vector<4xf32>
        %209 = arith.addi %205, %44 : index
        %210 = vector.load %5[%209] : memref<256xf32>, vector<4xf32>
        %211 = arith.addi %205, %25 : index
        %212 = vector.load %5[%211] : memref<256xf32>, vector<4xf32>
        %213 = arith.addi %205, %46 : index
        %214 = vector.load %5[%213] : memref<256xf32>, vector<4xf32>
        %215 = arith.addi %205, %47 : index
        %216 = vector.load %5[%215] : memref<256xf32>, vector<4xf32>
        %217 = arith.addi %205, %26 : index
        %218 = vector.load %5[%217] : memref<256xf32>, vector<4xf32>
        %219 = arith.addi %205, %48 : index
        %220 = vector.load %5[%219] : memref<256xf32>, vector<4xf32>
        %221 = arith.addi %205, %49 : index
        %222 = vector.load %5[%221] : memref<256xf32>, vector<4xf32>
        %223 = arith.addi %205, %27 : index
        %224 = vector.load %5[%223] : memref<256xf32>, vector<4xf32>
        %225 = arith.addi %205, %50 : index
        %226 = vector.load %5[%225] : memref<256xf32>, vector<4xf32>
        %227 = arith.addi %205, %51 : index
        %228 = vector.load %5[%227] : memref<256xf32>, vector<4xf32>
        %229 = arith.addi %205, %28 : index
        %230 = vector.load %5[%229] : memref<256xf32>, vector<4xf32>
        %231 = arith.addi %205, %52 : index
        %232 = vector.load %5[%231] : memref<256xf32>, vector<4xf32>
        %233 = arith.addi %205, %53 : index
        %234 = vector.load %5[%233] : memref<256xf32>, vector<4xf32>
        %235 = arith.addi %205, %29 : index
        %236 = vector.load %5[%235] : memref<256xf32>, vector<4xf32>
        %237 = arith.addf %214, %222 : vector<4xf32>
        %238 = arith.subf %214, %222 : vector<4xf32>
        %239 = arith.addf %206, %237 : vector<4xf32>
        %240 = arith.subf %238, %230 : vector<4xf32>
        %241 = arith.addf %216, %224 : vector<4xf32>
        %242 = arith.subf %216, %224 : vector<4xf32>
        %243 = arith.addf %208, %241 : vector<4xf32>
        %244 = arith.subf %242, %232 : vector<4xf32>
        %245 = arith.addf %218, %226 : vector<4xf32>
        %246 = arith.subf %218, %226 : vector<4xf32>
        %247 = arith.addf %210, %245 : vector<4xf32>
        %248 = arith.subf %246, %234 : vector<4xf32>
        %249 = arith.addf %220, %228 : vector<4xf32>
        %250 = arith.subf %220, %228 : vector<4xf32>
        %251 = arith.addf %212, %249 : vector<4xf32>
        %252 = arith.subf %250, %236 : vector<4xf32>
        %253 = arith.addf %243, %247 : vector<4xf32>
        %254 = arith.subf %243, %247 : vector<4xf32>
        %255 = arith.addf %239, %253 : vector<4xf32>
        %256 = arith.subf %254, %251 : vector<4xf32>
        %257 = arith.addf %244, %248 : vector<4xf32>
        %258 = arith.subf %244, %248 : vector<4xf32>
        %259 = arith.addf %240, %257 : vector<4xf32>
        %260 = arith.subf %258, %252 : vector<4xf32>
        %261 = arith.cmpi sge, %204, %203 : index
        %262 = arith.muli %204, %54 : index
        %263 = arith.muli %202, %55 : index
        %264 = arith.addi %262, %263 : index
        %265 = arith.addi %264, %56 : index
        scf.if %261 {
          %266 = vector.load %3[%7] : memref<5xf32>, vector<4xf32>
          %267 = arith.addf %255, %266 : vector<4xf32>
          vector.store %267, %4[%264] : memref<60xf32>, vector<4xf32>
          %268 = vector.load %3[%7] : memref<5xf32>, vector<4xf32>
          %269 = arith.addf %256, %268 : vector<4xf32>
          vector.store %269, %4[%265] : memref<60xf32>, vector<4xf32>
        }
        %270 = vector.load %3[%7] : memref<5xf32>, vector<4xf32>
        %271 = arith.addf %259, %270 : vector<4xf32>
        %272 = arith.addi %264, %54 : index
        vector.store %271, %4[%272] : memref<60xf32>, vector<4xf32>
        %273 = vector.load %3[%7] : memref<5xf32>, vector<4xf32>
        %274 = arith.addf %260, %273 : vector<4xf32>
        %275 = arith.addi %264, %57 : index
        vector.store %274, %4[%275] : memref<60xf32>, vector<4xf32>
      }
      scf.for %276 = %7 to %15 step %9 {
        %277 = arith.muli %276, %25 : index
        %278 = arith.muli %276, %42 : index
        scf.for %279 = %7 to %8 step %9 {
          %280 = arith.muli %279, %12 : index
          %281 = arith.muli %279, %15 : index
          %282 = arith.addi %277, %281 : index
          scf.for %283 = %7 to %12 step %9 {
            %284 = arith.addi %280, %283 : index
            memref.store %41, %58[%284] : memref<8xf32>
            %285 = arith.addi %278, %283 : index
            scf.for %286 = %7 to %8 step %9 {
              %287 = arith.addi %282, %286 : index
              %288 = memref.load %6[%287] : memref<768xf32>
              %289 = arith.muli %286, %12 : index
              %290 = arith.addi %285, %289 : index
              %291 = arith.addi %290, %49 : index
              %292 = memref.load %2[%291] : memref<256xf32>
              %293 = memref.load %58[%284] : memref<8xf32>
              %294 = arith.mulf %288, %292 : f32
              %295 = arith.addf %293, %294 : f32
              memref.store %295, %58[%284] : memref<8xf32>
            } {prefetch = #tile.prefetch_next<argument 2, elements 8, lanes 4, share 2, lines 1, loops 1>}
          } {interchange, vectorize = array<i64: 4>}
        } {unroll, interchange}
        %296 = arith.muli %276, %15 : index
        scf.for %297 = %7 to %8 step %9 {
          %298 = arith.muli %297, %12 : index
          %299 = arith.addi %296, %298 : index
          scf.for %300 = %7 to %12 step %9 {
            %301 = arith.addi %298, %300 : index
            %302 = memref.load %58[%301] : memref<8xf32>
            %303 = arith.addi %299, %300 : index
            memref.store %302, %5[%303] : memref<256xf32>
          } {vectorize = array<i64: 4>}
        } {unroll}
        scf.for %304 = %7 to %12 step %9 {
          memref.store %41, %59[%304] : memref<4xf32>
          %305 = arith.addi %278, %304 : index
          scf.for %306 = %7 to %8 step %9 {
            %307 = arith.addi %277, %306 : index
            %308 = arith.addi %307, %44 : index
            %309 = memref.load %6[%308] : memref<768xf32>
            %310 = arith.muli %306, %12 : index
            %311 = arith.addi %305, %310 : index
            %312 = arith.addi %311, %49 : index
            %313 = memref.load %2[%312] : memref<256xf32>
            %314 = memref.load %59[%304] : memref<4xf32>
            %315 = arith.mulf %309, %313 : f32
            %316 = arith.addf %314, %315 : f32
            memref.store %316, %59[%304] : memref<4xf32>
          } {prefetch = #tile.prefetch_next<argument 2, elements 8, lanes 4, share 2, lines 1, loops 1, first 4>}
        } {interchange, vectorize = array<i64: 4>}
        scf.for %317 = %7 to %12 step %9 {
          %318 = memref.load %59[%317] : memref<4xf32>
          %319 = arith.addi %296, %317 : index
          %320 = arith.addi %319, %42 : index
          memref.store %318, %5[%320] : memref<256xf32>
        } {vectorize = array<i64: 4>}
      }
      scf.for %321 = %7 to %198 step %9 {
        %322 = arith.addi %63, %321 : index
        %323 = arith.divsi %322, %8 : index
        %324 = arith.remsi %322, %8 : index
        %325 = arith.muli %323, %8 : index
        %326 = arith.minsi %325, %9 : index
        %327 = arith.muli %321, %12 : index
        %328 = vector.load %5[%327] : memref<256xf32>, vector<4xf32>
        %329 = arith.addi %327, %15 : index
        %330 = vector.load %5[%329] : memref<256xf32>, vector<4xf32>
        %331 = arith.addi %327, %44 : index
        %332 = vector.load %5[%331] : memref<256xf32>, vector<4xf32>
        %333 = arith.addi %327, %25 : index
        %334 = vector.load %5[%333] : memref<256xf32>, vector<4xf32>
        %335 = arith.addi %327, %46 : index
        %336 = vector.load %5[%335] : memref<256xf32>, vector<4xf32>
        %337 = arith.addi %327, %47 : index
        %338 = vector.load %5[%337] : memref<256xf32>, vector<4xf32>
        %339 = arith.addi %327, %26 : index
        %340 = vector.load %5[%339] : memref<256xf32>, vector<4xf32>
        %341 = arith.addi %327, %48 : index
        %342 = vector.load %5[%341] : memref<256xf32>, vector<4xf32>
        %343 = arith.addi %327, %49 : index
        %344 = vector.load %5[%343] : memref<256xf32>, vector<4xf32>
        %345 = arith.addi %327, %27 : index
        %346 = vector.load %5[%345] : memref<256xf32>, vector<4xf32>
        %347 = arith.addi %327, %50 : index
        %348 = vector.load %5[%347] : memref<256xf32>, vector<4xf32>
        %349 = arith.addi %327, %51 : index
        %350 = vector.load %5[%349] : memref<256xf32>, vector<4xf32>
        %351 = arith.addi %327, %28 : index
        %352 = vector.load %5[%351] : memref<256xf32>, vector<4xf32>
        %353 = arith.addi %327, %52 : index
        %354 = vector.load %5[%353] : memref<256xf32>, vector<4xf32>
        %355 = arith.addi %327, %53 : index
        %356 = vector.load %5[%355] : memref<256xf32>, vector<4xf32>
        %357 = arith.addi %327, %29 : index
        %358 = vector.load %5[%357] : memref<256xf32>, vector<4xf32>
        %359 = arith.addf %336, %344 : vector<4xf32>
        %360 = arith.subf %336, %344 : vector<4xf32>
        %361 = arith.addf %328, %359 : vector<4xf32>
        %362 = arith.subf %360, %352 : vector<4xf32>
        %363 = arith.addf %338, %346 : vector<4xf32>
        %364 = arith.subf %338, %346 : vector<4xf32>
        %365 = arith.addf %330, %363 : vector<4xf32>
        %366 = arith.subf %364, %354 : vector<4xf32>
        %367 = arith.addf %340, %348 : vector<4xf32>
        %368 = arith.subf %340, %348 : vector<4xf32>
        %369 = arith.addf %332, %367 : vector<4xf32>
        %370 = arith.subf %368, %356 : vector<4xf32>
        %371 = arith.addf %342, %350 : vector<4xf32>
        %372 = arith.subf %342, %350 : vector<4xf32>
        %373 = arith.addf %334, %371 : vector<4xf32>
        %374 = arith.subf %372, %358 : vector<4xf32>
        %375 = arith.addf %365, %369 : vector<4xf32>
        %376 = arith.subf %365, %369 : vector<4xf32>
        %377 = arith.addf %361, %375 : vector<4xf32>
        %378 = arith.subf %376, %373 : vector<4xf32>
        %379 = arith.addf %366, %370 : vector<4xf32>
        %380 = arith.subf %366, %370 : vector<4xf32>
        %381 = arith.addf %362, %379 : vector<4xf32>
        %382 = arith.subf %380, %374 : vector<4xf32>
        %383 = arith.cmpi sge, %326, %325 : index
        %384 = arith.muli %326, %54 : index
        %385 = arith.muli %324, %55 : index
        %386 = arith.addi %384, %385 : index
        %387 = arith.addi %386, %12 : index
        %388 = arith.addi %386, %60 : index
        scf.if %383 {
          %389 = vector.extract %377[0] : f32 from vector<4xf32>
          %390 = memref.load %3[%12] : memref<5xf32>
          %391 = arith.addf %389, %390 : f32
          memref.store %391, %4[%387] : memref<60xf32>
          %392 = vector.extract %378[0] : f32 from vector<4xf32>
          %393 = memref.load %3[%12] : memref<5xf32>
          %394 = arith.addf %392, %393 : f32
          memref.store %394, %4[%388] : memref<60xf32>
        }
        %395 = vector.extract %381[0] : f32 from vector<4xf32>
        %396 = memref.load %3[%12] : memref<5xf32>
        %397 = arith.addf %395, %396 : f32
        %398 = arith.addi %386, %17 : index
        memref.store %397, %4[%398] : memref<60xf32>
        %399 = vector.extract %382[0] : f32 from vector<4xf32>
        %400 = memref.load %3[%12] : memref<5xf32>
        %401 = arith.addf %399, %400 : f32
        %402 = arith.addi %386, %61 : index
        memref.store %401, %4[%402] : memref<60xf32>
      }
    }
    func.return
  }
  pg.graph @main inputs [#pg.bytes<"x">, #pg.bytes<"u">, #pg.bytes<"bias">] {
  ^bb0(%x: tensor<1x5x6x2xf32>, %u: tensor<16x2x5xf32>, %bias: tensor<5xf32>):
    %p = tile.launch @move_256_f32_0 chunks 1 : i64 inplace [](%u) : (tensor<16x2x5xf32>) -> tensor<16x2x5xf32, #layout>
    %y = tile.launch @addf_subf_mulf_60_f32_0 chunks 1 : i64 inplace [](%x, %p, %bias) : (tensor<1x5x6x2xf32>, tensor<16x2x5xf32, #layout>, tensor<5xf32>) -> tensor<1x3x4x5xf32>
    pg.return [#pg.bytes<"y">], %y : tensor<1x3x4x5xf32>
  }
}
