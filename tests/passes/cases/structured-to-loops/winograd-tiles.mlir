// Tiles of 2x2 results by Winograd: the last ones end where the image ends, the last panel is short.
#map = affine_map<(d0, d1, d2) -> ((d2 floordiv 4), d0, d1, (d2 mod 4))>
#map1 = affine_map<(d0, d1, d2, d3) -> (d3)>
#layout = #tile.layout<#map, #pg.ints[2, 16, 2, 4]>
!tensor = tensor<16x2x5xf32, #layout>
builtin.module {
  pg.graph @main inputs [#pg.bytes<"x">, #pg.bytes<"u">, #pg.bytes<"bias">] {
  ^bb0(%x: tensor<1x5x6x2xf32>, %u: tensor<16x2x5xf32>, %bias: tensor<5xf32>):
    %p = tile.pack %u : tensor<16x2x5xf32> -> !tensor
    %y = tile.winograd %x, %p : tensor<1x5x6x2xf32>, !tensor epilogue_inputs(%bias : tensor<5xf32>) domain [1, 3, 4, 5]
        offset [0, 0] size 2 : i64 tiles 3 : i64 epilogue_maps [#map1]
        schedule <n_dim 2, n_vectors 1, m_dim 1, mr 2, kc 64, lanes 4> epilogue {
    ^bb0(%0: f32, %1: f32):
      %2 = arith.addf %0, %1 : f32
      tile.yield %2 : f32
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
        scf.for %154 = %7 to %8 step %9 {
          %155 = arith.muli %154, %12 : index
          scf.for %156 = %7 to %12 step %9 {
            %157 = arith.addi %155, %156 : index
            memref.store %41, %40[%157] : memref<8xf32>
          } {vectorize = array<i64: 4>}
        } {unroll}
        %158 = arith.muli %153, %25 : index
        %159 = arith.muli %153, %42 : index
        scf.for %160 = %7 to %8 step %9 {
          %161 = arith.addi %158, %160 : index
          %162 = arith.muli %160, %12 : index
          %163 = arith.addi %159, %162 : index
          scf.for %164 = %7 to %8 step %9 {
            %165 = arith.muli %164, %12 : index
            %166 = arith.muli %164, %15 : index
            %167 = arith.addi %161, %166 : index
            %168 = memref.load %6[%167] : memref<768xf32>
            scf.for %169 = %7 to %12 step %9 {
              %170 = arith.addi %165, %169 : index
              %171 = memref.load %40[%170] : memref<8xf32>
              %172 = arith.addi %163, %169 : index
              %173 = memref.load %2[%172] : memref<256xf32>
              %174 = arith.mulf %168, %173 : f32
              %175 = arith.addf %171, %174 : f32
              memref.store %175, %40[%170] : memref<8xf32>
            } {vectorize = array<i64: 4>}
          } {unroll}
        } {prefetch = #tile.prefetch_next<argument 2, elements 8, lanes 4, share 2, lines 1, loops 1>}
        %176 = arith.muli %153, %15 : index
        scf.for %177 = %7 to %8 step %9 {
          %178 = arith.muli %177, %12 : index
          %179 = arith.addi %176, %178 : index
          scf.for %180 = %7 to %12 step %9 {
            %181 = arith.addi %178, %180 : index
            %182 = memref.load %40[%181] : memref<8xf32>
            %183 = arith.addi %179, %180 : index
            memref.store %182, %5[%183] : memref<256xf32>
          } {vectorize = array<i64: 4>}
        } {unroll}
        scf.for %184 = %7 to %12 step %9 {
          memref.store %41, %43[%184] : memref<4xf32>
        } {vectorize = array<i64: 4>}
        scf.for %185 = %7 to %8 step %9 {
          %186 = arith.addi %158, %185 : index
          %187 = arith.addi %186, %44 : index
          %188 = memref.load %6[%187] : memref<768xf32>
          %189 = arith.muli %185, %12 : index
          %190 = arith.addi %159, %189 : index
          scf.for %191 = %7 to %12 step %9 {
            %192 = memref.load %43[%191] : memref<4xf32>
            %193 = arith.addi %190, %191 : index
            %194 = memref.load %2[%193] : memref<256xf32>
            %195 = arith.mulf %188, %194 : f32
            %196 = arith.addf %192, %195 : f32
            memref.store %196, %43[%191] : memref<4xf32>
          } {vectorize = array<i64: 4>}
        } {prefetch = #tile.prefetch_next<argument 2, elements 8, lanes 4, share 2, lines 1, loops 1, first 4>}
        scf.for %197 = %7 to %12 step %9 {
          %198 = memref.load %43[%197] : memref<4xf32>
          %199 = arith.addi %176, %197 : index
          %200 = arith.addi %199, %42 : index
          memref.store %198, %5[%200] : memref<256xf32>
        } {vectorize = array<i64: 4>}
      }
      %201 = arith.muli %62, %45 : index
      %202 = arith.addi %201, %12 : index
      %203 = arith.minsi %202, %10 : index
      scf.for %204 = %7 to %203 step %9 {
        %205 = arith.addi %63, %204 : index
        %206 = arith.divsi %205, %8 : index
        %207 = arith.remsi %205, %8 : index
        %208 = arith.muli %206, %8 : index
        %209 = arith.minsi %208, %9 : index
        %210 = arith.muli %204, %12 : index
        %211 = vector.load %5[%210] : memref<256xf32>, vector<4xf32>
        %212 = arith.addi %210, %15 : index
        %213 = vector.load %5[%212] : memref<256xf32>, vector<4xf32>
        %214 = arith.addi %210, %44 : index
        %215 = vector.load %5[%214] : memref<256xf32>, vector<4xf32>
        %216 = arith.addi %210, %25 : index
        %217 = vector.load %5[%216] : memref<256xf32>, vector<4xf32>
        %218 = arith.addi %210, %46 : index
        %219 = vector.load %5[%218] : memref<256xf32>, vector<4xf32>
        %220 = arith.addi %210, %47 : index
        %221 = vector.load %5[%220] : memref<256xf32>, vector<4xf32>
        %222 = arith.addi %210, %26 : index
        %223 = vector.load %5[%222] : memref<256xf32>, vector<4xf32>
        %224 = arith.addi %210, %48 : index
        %225 = vector.load %5[%224] : memref<256xf32>, vector<4xf32>
        %226 = arith.addi %210, %49 : index
        %227 = vector.load %5[%226] : memref<256xf32>, vector<4xf32>
        %228 = arith.addi %210, %27 : index
        %229 = vector.load %5[%228] : memref<256xf32>, vector<4xf32>
        %230 = arith.addi %210, %50 : index
        %231 = vector.load %5[%230] : memref<256xf32>, vector<4xf32>
        %232 = arith.addi %210, %51 : index
        %233 = vector.load %5[%232] : memref<256xf32>, vector<4xf32>
        %234 = arith.addi %210, %28 : index
        %235 = vector.load %5[%234] : memref<256xf32>, vector<4xf32>
        %236 = arith.addi %210, %52 : index
        %237 = vector.load %5[%236] : memref<256xf32>, vector<4xf32>
        %238 = arith.addi %210, %53 : index
        %239 = vector.load %5[%238] : memref<256xf32>, vector<4xf32>
        %240 = arith.addi %210, %29 : index
        %241 = vector.load %5[%240] : memref<256xf32>, vector<4xf32>
        %242 = arith.addf %219, %227 : vector<4xf32>
        %243 = arith.subf %219, %227 : vector<4xf32>
        %244 = arith.addf %211, %242 : vector<4xf32>
        %245 = arith.subf %243, %235 : vector<4xf32>
        %246 = arith.addf %221, %229 : vector<4xf32>
        %247 = arith.subf %221, %229 : vector<4xf32>
        %248 = arith.addf %213, %246 : vector<4xf32>
        %249 = arith.subf %247, %237 : vector<4xf32>
        %250 = arith.addf %223, %231 : vector<4xf32>
        %251 = arith.subf %223, %231 : vector<4xf32>
        %252 = arith.addf %215, %250 : vector<4xf32>
        %253 = arith.subf %251, %239 : vector<4xf32>
        %254 = arith.addf %225, %233 : vector<4xf32>
        %255 = arith.subf %225, %233 : vector<4xf32>
        %256 = arith.addf %217, %254 : vector<4xf32>
        %257 = arith.subf %255, %241 : vector<4xf32>
        %258 = arith.addf %248, %252 : vector<4xf32>
        %259 = arith.subf %248, %252 : vector<4xf32>
        %260 = arith.addf %244, %258 : vector<4xf32>
        %261 = arith.subf %259, %256 : vector<4xf32>
        %262 = arith.addf %249, %253 : vector<4xf32>
        %263 = arith.subf %249, %253 : vector<4xf32>
        %264 = arith.addf %245, %262 : vector<4xf32>
        %265 = arith.subf %263, %257 : vector<4xf32>
        %266 = arith.cmpi sge, %209, %208 : index
        %267 = arith.muli %209, %54 : index
        %268 = arith.muli %207, %55 : index
        %269 = arith.addi %267, %268 : index
        %270 = arith.addi %269, %56 : index
        scf.if %266 {
          %271 = vector.load %3[%7] : memref<5xf32>, vector<4xf32>
          %272 = arith.addf %260, %271 : vector<4xf32>
          vector.store %272, %4[%269] : memref<60xf32>, vector<4xf32>
          %273 = vector.load %3[%7] : memref<5xf32>, vector<4xf32>
          %274 = arith.addf %261, %273 : vector<4xf32>
          vector.store %274, %4[%270] : memref<60xf32>, vector<4xf32>
        }
        %275 = vector.load %3[%7] : memref<5xf32>, vector<4xf32>
        %276 = arith.addf %264, %275 : vector<4xf32>
        %277 = arith.addi %269, %54 : index
        vector.store %276, %4[%277] : memref<60xf32>, vector<4xf32>
        %278 = vector.load %3[%7] : memref<5xf32>, vector<4xf32>
        %279 = arith.addf %265, %278 : vector<4xf32>
        %280 = arith.addi %269, %57 : index
        vector.store %279, %4[%280] : memref<60xf32>, vector<4xf32>
      }
      scf.for %281 = %7 to %15 step %9 {
        scf.for %282 = %7 to %8 step %9 {
          %283 = arith.muli %282, %12 : index
          scf.for %284 = %7 to %12 step %9 {
            %285 = arith.addi %283, %284 : index
            memref.store %41, %58[%285] : memref<8xf32>
          } {vectorize = array<i64: 4>}
        } {unroll}
        %286 = arith.muli %281, %25 : index
        %287 = arith.muli %281, %42 : index
        scf.for %288 = %7 to %8 step %9 {
          %289 = arith.addi %286, %288 : index
          %290 = arith.muli %288, %12 : index
          %291 = arith.addi %287, %290 : index
          scf.for %292 = %7 to %8 step %9 {
            %293 = arith.muli %292, %12 : index
            %294 = arith.muli %292, %15 : index
            %295 = arith.addi %289, %294 : index
            %296 = memref.load %6[%295] : memref<768xf32>
            scf.for %297 = %7 to %12 step %9 {
              %298 = arith.addi %293, %297 : index
              %299 = memref.load %58[%298] : memref<8xf32>
              %300 = arith.addi %291, %297 : index
              %301 = arith.addi %300, %49 : index
              %302 = memref.load %2[%301] : memref<256xf32>
              %303 = arith.mulf %296, %302 : f32
              %304 = arith.addf %299, %303 : f32
              memref.store %304, %58[%298] : memref<8xf32>
            } {vectorize = array<i64: 4>}
          } {unroll}
        } {prefetch = #tile.prefetch_next<argument 2, elements 8, lanes 4, share 2, lines 1, loops 1>}
        %305 = arith.muli %281, %15 : index
        scf.for %306 = %7 to %8 step %9 {
          %307 = arith.muli %306, %12 : index
          %308 = arith.addi %305, %307 : index
          scf.for %309 = %7 to %12 step %9 {
            %310 = arith.addi %307, %309 : index
            %311 = memref.load %58[%310] : memref<8xf32>
            %312 = arith.addi %308, %309 : index
            memref.store %311, %5[%312] : memref<256xf32>
          } {vectorize = array<i64: 4>}
        } {unroll}
        scf.for %313 = %7 to %12 step %9 {
          memref.store %41, %59[%313] : memref<4xf32>
        } {vectorize = array<i64: 4>}
        scf.for %314 = %7 to %8 step %9 {
          %315 = arith.addi %286, %314 : index
          %316 = arith.addi %315, %44 : index
          %317 = memref.load %6[%316] : memref<768xf32>
          %318 = arith.muli %314, %12 : index
          %319 = arith.addi %287, %318 : index
          scf.for %320 = %7 to %12 step %9 {
            %321 = memref.load %59[%320] : memref<4xf32>
            %322 = arith.addi %319, %320 : index
            %323 = arith.addi %322, %49 : index
            %324 = memref.load %2[%323] : memref<256xf32>
            %325 = arith.mulf %317, %324 : f32
            %326 = arith.addf %321, %325 : f32
            memref.store %326, %59[%320] : memref<4xf32>
          } {vectorize = array<i64: 4>}
        } {prefetch = #tile.prefetch_next<argument 2, elements 8, lanes 4, share 2, lines 1, loops 1, first 4>}
        scf.for %327 = %7 to %12 step %9 {
          %328 = memref.load %59[%327] : memref<4xf32>
          %329 = arith.addi %305, %327 : index
          %330 = arith.addi %329, %42 : index
          memref.store %328, %5[%330] : memref<256xf32>
        } {vectorize = array<i64: 4>}
      }
      scf.for %331 = %7 to %203 step %9 {
        %332 = arith.addi %63, %331 : index
        %333 = arith.divsi %332, %8 : index
        %334 = arith.remsi %332, %8 : index
        %335 = arith.muli %333, %8 : index
        %336 = arith.minsi %335, %9 : index
        %337 = arith.muli %331, %12 : index
        %338 = vector.load %5[%337] : memref<256xf32>, vector<4xf32>
        %339 = arith.addi %337, %15 : index
        %340 = vector.load %5[%339] : memref<256xf32>, vector<4xf32>
        %341 = arith.addi %337, %44 : index
        %342 = vector.load %5[%341] : memref<256xf32>, vector<4xf32>
        %343 = arith.addi %337, %25 : index
        %344 = vector.load %5[%343] : memref<256xf32>, vector<4xf32>
        %345 = arith.addi %337, %46 : index
        %346 = vector.load %5[%345] : memref<256xf32>, vector<4xf32>
        %347 = arith.addi %337, %47 : index
        %348 = vector.load %5[%347] : memref<256xf32>, vector<4xf32>
        %349 = arith.addi %337, %26 : index
        %350 = vector.load %5[%349] : memref<256xf32>, vector<4xf32>
        %351 = arith.addi %337, %48 : index
        %352 = vector.load %5[%351] : memref<256xf32>, vector<4xf32>
        %353 = arith.addi %337, %49 : index
        %354 = vector.load %5[%353] : memref<256xf32>, vector<4xf32>
        %355 = arith.addi %337, %27 : index
        %356 = vector.load %5[%355] : memref<256xf32>, vector<4xf32>
        %357 = arith.addi %337, %50 : index
        %358 = vector.load %5[%357] : memref<256xf32>, vector<4xf32>
        %359 = arith.addi %337, %51 : index
        %360 = vector.load %5[%359] : memref<256xf32>, vector<4xf32>
        %361 = arith.addi %337, %28 : index
        %362 = vector.load %5[%361] : memref<256xf32>, vector<4xf32>
        %363 = arith.addi %337, %52 : index
        %364 = vector.load %5[%363] : memref<256xf32>, vector<4xf32>
        %365 = arith.addi %337, %53 : index
        %366 = vector.load %5[%365] : memref<256xf32>, vector<4xf32>
        %367 = arith.addi %337, %29 : index
        %368 = vector.load %5[%367] : memref<256xf32>, vector<4xf32>
        %369 = arith.addf %346, %354 : vector<4xf32>
        %370 = arith.subf %346, %354 : vector<4xf32>
        %371 = arith.addf %338, %369 : vector<4xf32>
        %372 = arith.subf %370, %362 : vector<4xf32>
        %373 = arith.addf %348, %356 : vector<4xf32>
        %374 = arith.subf %348, %356 : vector<4xf32>
        %375 = arith.addf %340, %373 : vector<4xf32>
        %376 = arith.subf %374, %364 : vector<4xf32>
        %377 = arith.addf %350, %358 : vector<4xf32>
        %378 = arith.subf %350, %358 : vector<4xf32>
        %379 = arith.addf %342, %377 : vector<4xf32>
        %380 = arith.subf %378, %366 : vector<4xf32>
        %381 = arith.addf %352, %360 : vector<4xf32>
        %382 = arith.subf %352, %360 : vector<4xf32>
        %383 = arith.addf %344, %381 : vector<4xf32>
        %384 = arith.subf %382, %368 : vector<4xf32>
        %385 = arith.addf %375, %379 : vector<4xf32>
        %386 = arith.subf %375, %379 : vector<4xf32>
        %387 = arith.addf %371, %385 : vector<4xf32>
        %388 = arith.subf %386, %383 : vector<4xf32>
        %389 = arith.addf %376, %380 : vector<4xf32>
        %390 = arith.subf %376, %380 : vector<4xf32>
        %391 = arith.addf %372, %389 : vector<4xf32>
        %392 = arith.subf %390, %384 : vector<4xf32>
        %393 = arith.cmpi sge, %336, %335 : index
        %394 = arith.muli %336, %54 : index
        %395 = arith.muli %334, %55 : index
        %396 = arith.addi %394, %395 : index
        %397 = arith.addi %396, %12 : index
        %398 = arith.addi %396, %60 : index
        scf.if %393 {
          %399 = vector.extract %387[0] : f32 from vector<4xf32>
          %400 = memref.load %3[%12] : memref<5xf32>
          %401 = arith.addf %399, %400 : f32
          memref.store %401, %4[%397] : memref<60xf32>
          %402 = vector.extract %388[0] : f32 from vector<4xf32>
          %403 = memref.load %3[%12] : memref<5xf32>
          %404 = arith.addf %402, %403 : f32
          memref.store %404, %4[%398] : memref<60xf32>
        }
        %405 = vector.extract %391[0] : f32 from vector<4xf32>
        %406 = memref.load %3[%12] : memref<5xf32>
        %407 = arith.addf %405, %406 : f32
        %408 = arith.addi %396, %17 : index
        memref.store %407, %4[%408] : memref<60xf32>
        %409 = vector.extract %392[0] : f32 from vector<4xf32>
        %410 = memref.load %3[%12] : memref<5xf32>
        %411 = arith.addf %409, %410 : f32
        %412 = arith.addi %396, %61 : index
        memref.store %411, %4[%412] : memref<60xf32>
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
