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
        schedule <n_dim 3, n_vectors 1, m_dim -1, mr 2, kc 64, lanes 4> epilogue {
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
  func.func private @addf_subf_fma_60_f32_0(%0: index, %1: memref<60xf32>, %2: memref<256xf32>, %3: memref<5xf32>, %4: memref<60xf32>) {
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
    %42 = vector.broadcast %41 : f32 to vector<4xf32>
    %43 = arith.constant 8 : index
    %44 = memref.alloca() : memref<4xf32>
    %45 = arith.constant 32 : index
    %46 = arith.constant -3 : index
    %47 = arith.constant 64 : index
    %48 = arith.constant 80 : index
    %49 = arith.constant 112 : index
    %50 = arith.constant 128 : index
    %51 = arith.constant 160 : index
    %52 = arith.constant 176 : index
    %53 = arith.constant 208 : index
    %54 = arith.constant 224 : index
    %55 = arith.constant 20 : index
    %56 = arith.constant 10 : index
    %57 = arith.constant 5 : index
    %58 = arith.constant 25 : index
    %59 = memref.alloca() : memref<8xf32>
    %60 = arith.constant 136 : index
    %61 = memref.alloca() : memref<4xf32>
    %62 = arith.constant 140 : index
    %63 = arith.constant 9 : index
    %64 = arith.constant 29 : index
    scf.for %65 = %7 to %8 step %9 {
      %66 = arith.muli %65, %10 : index
      scf.for %67 = %7 to %10 step %9 {
        %68 = arith.addi %66, %67 : index
        %69 = arith.minsi %68, %10 : index
        %70 = arith.divsi %69, %8 : index
        %71 = arith.remsi %69, %8 : index
        %72 = arith.muli %70, %8 : index
        %73 = arith.minsi %72, %9 : index
        %74 = arith.muli %73, %11 : index
        %75 = arith.muli %71, %12 : index
        %76 = arith.addi %74, %75 : index
        %77 = vector.load %1[%76] : memref<60xf32>, vector<2xf32>
        %78 = arith.addi %76, %8 : index
        %79 = vector.load %1[%78] : memref<60xf32>, vector<2xf32>
        %80 = arith.addi %76, %12 : index
        %81 = vector.load %1[%80] : memref<60xf32>, vector<2xf32>
        %82 = arith.addi %76, %13 : index
        %83 = vector.load %1[%82] : memref<60xf32>, vector<2xf32>
        %84 = arith.addi %76, %11 : index
        %85 = vector.load %1[%84] : memref<60xf32>, vector<2xf32>
        %86 = arith.addi %76, %14 : index
        %87 = vector.load %1[%86] : memref<60xf32>, vector<2xf32>
        %88 = arith.addi %76, %15 : index
        %89 = vector.load %1[%88] : memref<60xf32>, vector<2xf32>
        %90 = arith.addi %76, %16 : index
        %91 = vector.load %1[%90] : memref<60xf32>, vector<2xf32>
        %92 = arith.addi %76, %17 : index
        %93 = vector.load %1[%92] : memref<60xf32>, vector<2xf32>
        %94 = arith.addi %76, %18 : index
        %95 = vector.load %1[%94] : memref<60xf32>, vector<2xf32>
        %96 = arith.addi %76, %19 : index
        %97 = vector.load %1[%96] : memref<60xf32>, vector<2xf32>
        %98 = arith.addi %76, %20 : index
        %99 = vector.load %1[%98] : memref<60xf32>, vector<2xf32>
        %100 = arith.addi %76, %21 : index
        %101 = vector.load %1[%100] : memref<60xf32>, vector<2xf32>
        %102 = arith.addi %76, %22 : index
        %103 = vector.load %1[%102] : memref<60xf32>, vector<2xf32>
        %104 = arith.addi %76, %23 : index
        %105 = vector.load %1[%104] : memref<60xf32>, vector<2xf32>
        %106 = arith.addi %76, %24 : index
        %107 = vector.load %1[%106] : memref<60xf32>, vector<2xf32>
        %108 = arith.addf %93, %85 : vector<2xf32>
        %109 = arith.subf %93, %85 : vector<2xf32>
        %110 = arith.subf %77, %93 : vector<2xf32>
        %111 = arith.subf %85, %101 : vector<2xf32>
        %112 = arith.addf %95, %87 : vector<2xf32>
        %113 = arith.subf %95, %87 : vector<2xf32>
        %114 = arith.subf %79, %95 : vector<2xf32>
        %115 = arith.subf %87, %103 : vector<2xf32>
        %116 = arith.addf %97, %89 : vector<2xf32>
        %117 = arith.subf %97, %89 : vector<2xf32>
        %118 = arith.subf %81, %97 : vector<2xf32>
        %119 = arith.subf %89, %105 : vector<2xf32>
        %120 = arith.addf %99, %91 : vector<2xf32>
        %121 = arith.subf %99, %91 : vector<2xf32>
        %122 = arith.subf %83, %99 : vector<2xf32>
        %123 = arith.subf %91, %107 : vector<2xf32>
        %124 = arith.addf %118, %114 : vector<2xf32>
        %125 = arith.subf %118, %114 : vector<2xf32>
        %126 = arith.subf %110, %118 : vector<2xf32>
        %127 = arith.subf %114, %122 : vector<2xf32>
        %128 = arith.addf %116, %112 : vector<2xf32>
        %129 = arith.subf %116, %112 : vector<2xf32>
        %130 = arith.subf %108, %116 : vector<2xf32>
        %131 = arith.subf %112, %120 : vector<2xf32>
        %132 = arith.addf %117, %113 : vector<2xf32>
        %133 = arith.subf %117, %113 : vector<2xf32>
        %134 = arith.subf %109, %117 : vector<2xf32>
        %135 = arith.subf %113, %121 : vector<2xf32>
        %136 = arith.addf %119, %115 : vector<2xf32>
        %137 = arith.subf %119, %115 : vector<2xf32>
        %138 = arith.subf %111, %119 : vector<2xf32>
        %139 = arith.subf %115, %123 : vector<2xf32>
        %140 = arith.muli %67, %15 : index
        vector.store %126, %6[%140] : memref<768xf32>, vector<2xf32>
        %141 = arith.addi %140, %25 : index
        vector.store %124, %6[%141] : memref<768xf32>, vector<2xf32>
        %142 = arith.addi %140, %26 : index
        vector.store %125, %6[%142] : memref<768xf32>, vector<2xf32>
        %143 = arith.addi %140, %27 : index
        vector.store %127, %6[%143] : memref<768xf32>, vector<2xf32>
        %144 = arith.addi %140, %28 : index
        vector.store %130, %6[%144] : memref<768xf32>, vector<2xf32>
        %145 = arith.addi %140, %29 : index
        vector.store %128, %6[%145] : memref<768xf32>, vector<2xf32>
        %146 = arith.addi %140, %30 : index
        vector.store %129, %6[%146] : memref<768xf32>, vector<2xf32>
        %147 = arith.addi %140, %31 : index
        vector.store %131, %6[%147] : memref<768xf32>, vector<2xf32>
        %148 = arith.addi %140, %32 : index
        vector.store %134, %6[%148] : memref<768xf32>, vector<2xf32>
        %149 = arith.addi %140, %33 : index
        vector.store %132, %6[%149] : memref<768xf32>, vector<2xf32>
        %150 = arith.addi %140, %34 : index
        vector.store %133, %6[%150] : memref<768xf32>, vector<2xf32>
        %151 = arith.addi %140, %35 : index
        vector.store %135, %6[%151] : memref<768xf32>, vector<2xf32>
        %152 = arith.addi %140, %36 : index
        vector.store %138, %6[%152] : memref<768xf32>, vector<2xf32>
        %153 = arith.addi %140, %37 : index
        vector.store %136, %6[%153] : memref<768xf32>, vector<2xf32>
        %154 = arith.addi %140, %38 : index
        vector.store %137, %6[%154] : memref<768xf32>, vector<2xf32>
        %155 = arith.addi %140, %39 : index
        vector.store %139, %6[%155] : memref<768xf32>, vector<2xf32>
      }
      scf.for %156 = %7 to %15 step %9 {
        scf.for %157 = %7 to %8 step %9 {
          %158 = arith.muli %157, %12 : index
          scf.for %159 = %7 to %12 step %12 {
            %160 = arith.addi %158, %159 : index
            vector.store %42, %40[%160] : memref<8xf32>, vector<4xf32>
          } {unroll}
        } {unroll}
        %161 = arith.muli %156, %43 : index
        %162 = arith.muli %156, %25 : index
        scf.for %163 = %7 to %8 step %9 {
          %164 = arith.muli %163, %8 : index
          %165 = arith.addi %161, %164 : index
          %166 = arith.addi %165, %43 : index
          tile.prefetch %2[%166] : memref<256xf32>
          %167 = arith.addi %162, %163 : index
          %168 = arith.muli %163, %12 : index
          %169 = arith.addi %161, %168 : index
          scf.for %170 = %7 to %8 step %9 {
            %171 = arith.muli %170, %12 : index
            %172 = arith.muli %170, %15 : index
            %173 = arith.addi %167, %172 : index
            %174 = memref.load %6[%173] : memref<768xf32>
            %175 = vector.broadcast %174 : f32 to vector<4xf32>
            scf.for %176 = %7 to %12 step %12 {
              %177 = arith.addi %171, %176 : index
              %178 = vector.load %40[%177] : memref<8xf32>, vector<4xf32>
              %179 = arith.addi %169, %176 : index
              %180 = vector.load %2[%179] : memref<256xf32>, vector<4xf32>
              %181 = vector.fma %175, %180, %178 : vector<4xf32>
              vector.store %181, %40[%177] : memref<8xf32>, vector<4xf32>
            } {unroll}
          } {unroll}
        }
        %182 = arith.muli %156, %15 : index
        scf.for %183 = %7 to %8 step %9 {
          %184 = arith.muli %183, %12 : index
          %185 = arith.addi %182, %184 : index
          scf.for %186 = %7 to %12 step %12 {
            %187 = arith.addi %184, %186 : index
            %188 = vector.load %40[%187] : memref<8xf32>, vector<4xf32>
            %189 = arith.addi %185, %186 : index
            vector.store %188, %5[%189] : memref<256xf32>, vector<4xf32>
          } {unroll}
        } {unroll}
        scf.for %190 = %7 to %12 step %12 {
          vector.store %42, %44[%190] : memref<4xf32>, vector<4xf32>
        } {unroll}
        scf.for %191 = %7 to %8 step %9 {
          %192 = arith.muli %191, %8 : index
          %193 = arith.addi %161, %192 : index
          %194 = arith.addi %193, %11 : index
          tile.prefetch %2[%194] : memref<256xf32>
          %195 = arith.addi %162, %191 : index
          %196 = arith.addi %195, %45 : index
          %197 = memref.load %6[%196] : memref<768xf32>
          %198 = vector.broadcast %197 : f32 to vector<4xf32>
          %199 = arith.muli %191, %12 : index
          %200 = arith.addi %161, %199 : index
          scf.for %201 = %7 to %12 step %12 {
            %202 = vector.load %44[%201] : memref<4xf32>, vector<4xf32>
            %203 = arith.addi %200, %201 : index
            %204 = vector.load %2[%203] : memref<256xf32>, vector<4xf32>
            %205 = vector.fma %198, %204, %202 : vector<4xf32>
            vector.store %205, %44[%201] : memref<4xf32>, vector<4xf32>
          } {unroll}
        }
        scf.for %206 = %7 to %12 step %12 {
          %207 = vector.load %44[%206] : memref<4xf32>, vector<4xf32>
          %208 = arith.addi %182, %206 : index
          %209 = arith.addi %208, %43 : index
          vector.store %207, %5[%209] : memref<256xf32>, vector<4xf32>
        } {unroll}
      }
      %210 = arith.muli %65, %46 : index
      %211 = arith.addi %210, %12 : index
      %212 = arith.minsi %211, %10 : index
      scf.for %213 = %7 to %212 step %9 {
        %214 = arith.addi %66, %213 : index
        %215 = arith.divsi %214, %8 : index
        %216 = arith.remsi %214, %8 : index
        %217 = arith.muli %215, %8 : index
        %218 = arith.minsi %217, %9 : index
        %219 = arith.muli %213, %12 : index
        %220 = vector.load %5[%219] : memref<256xf32>, vector<4xf32>
        %221 = arith.addi %219, %15 : index
        %222 = vector.load %5[%221] : memref<256xf32>, vector<4xf32>
        %223 = arith.addi %219, %45 : index
        %224 = vector.load %5[%223] : memref<256xf32>, vector<4xf32>
        %225 = arith.addi %219, %25 : index
        %226 = vector.load %5[%225] : memref<256xf32>, vector<4xf32>
        %227 = arith.addi %219, %47 : index
        %228 = vector.load %5[%227] : memref<256xf32>, vector<4xf32>
        %229 = arith.addi %219, %48 : index
        %230 = vector.load %5[%229] : memref<256xf32>, vector<4xf32>
        %231 = arith.addi %219, %26 : index
        %232 = vector.load %5[%231] : memref<256xf32>, vector<4xf32>
        %233 = arith.addi %219, %49 : index
        %234 = vector.load %5[%233] : memref<256xf32>, vector<4xf32>
        %235 = arith.addi %219, %50 : index
        %236 = vector.load %5[%235] : memref<256xf32>, vector<4xf32>
        %237 = arith.addi %219, %27 : index
        %238 = vector.load %5[%237] : memref<256xf32>, vector<4xf32>
        %239 = arith.addi %219, %51 : index
        %240 = vector.load %5[%239] : memref<256xf32>, vector<4xf32>
        %241 = arith.addi %219, %52 : index
        %242 = vector.load %5[%241] : memref<256xf32>, vector<4xf32>
        %243 = arith.addi %219, %28 : index
        %244 = vector.load %5[%243] : memref<256xf32>, vector<4xf32>
        %245 = arith.addi %219, %53 : index
        %246 = vector.load %5[%245] : memref<256xf32>, vector<4xf32>
        %247 = arith.addi %219, %54 : index
        %248 = vector.load %5[%247] : memref<256xf32>, vector<4xf32>
        %249 = arith.addi %219, %29 : index
        %250 = vector.load %5[%249] : memref<256xf32>, vector<4xf32>
        %251 = arith.addf %228, %236 : vector<4xf32>
        %252 = arith.subf %228, %236 : vector<4xf32>
        %253 = arith.addf %220, %251 : vector<4xf32>
        %254 = arith.subf %252, %244 : vector<4xf32>
        %255 = arith.addf %230, %238 : vector<4xf32>
        %256 = arith.subf %230, %238 : vector<4xf32>
        %257 = arith.addf %222, %255 : vector<4xf32>
        %258 = arith.subf %256, %246 : vector<4xf32>
        %259 = arith.addf %232, %240 : vector<4xf32>
        %260 = arith.subf %232, %240 : vector<4xf32>
        %261 = arith.addf %224, %259 : vector<4xf32>
        %262 = arith.subf %260, %248 : vector<4xf32>
        %263 = arith.addf %234, %242 : vector<4xf32>
        %264 = arith.subf %234, %242 : vector<4xf32>
        %265 = arith.addf %226, %263 : vector<4xf32>
        %266 = arith.subf %264, %250 : vector<4xf32>
        %267 = arith.addf %257, %261 : vector<4xf32>
        %268 = arith.subf %257, %261 : vector<4xf32>
        %269 = arith.addf %253, %267 : vector<4xf32>
        %270 = arith.subf %268, %265 : vector<4xf32>
        %271 = arith.addf %258, %262 : vector<4xf32>
        %272 = arith.subf %258, %262 : vector<4xf32>
        %273 = arith.addf %254, %271 : vector<4xf32>
        %274 = arith.subf %272, %266 : vector<4xf32>
        %275 = arith.cmpi sge, %218, %217 : index
        %276 = arith.muli %218, %55 : index
        %277 = arith.muli %216, %56 : index
        %278 = arith.addi %276, %277 : index
        %279 = arith.addi %278, %57 : index
        scf.if %275 {
          %280 = vector.load %3[%7] : memref<5xf32>, vector<4xf32>
          %281 = arith.addf %269, %280 : vector<4xf32>
          vector.store %281, %4[%278] : memref<60xf32>, vector<4xf32>
          %282 = vector.load %3[%7] : memref<5xf32>, vector<4xf32>
          %283 = arith.addf %270, %282 : vector<4xf32>
          vector.store %283, %4[%279] : memref<60xf32>, vector<4xf32>
        }
        %284 = vector.load %3[%7] : memref<5xf32>, vector<4xf32>
        %285 = arith.addf %273, %284 : vector<4xf32>
        %286 = arith.addi %278, %55 : index
        vector.store %285, %4[%286] : memref<60xf32>, vector<4xf32>
        %287 = vector.load %3[%7] : memref<5xf32>, vector<4xf32>
        %288 = arith.addf %274, %287 : vector<4xf32>
        %289 = arith.addi %278, %58 : index
        vector.store %288, %4[%289] : memref<60xf32>, vector<4xf32>
      }
      scf.for %290 = %7 to %15 step %9 {
        scf.for %291 = %7 to %8 step %9 {
          %292 = arith.muli %291, %12 : index
          scf.for %293 = %7 to %12 step %12 {
            %294 = arith.addi %292, %293 : index
            vector.store %42, %59[%294] : memref<8xf32>, vector<4xf32>
          } {unroll}
        } {unroll}
        %295 = arith.muli %290, %43 : index
        %296 = arith.muli %290, %25 : index
        scf.for %297 = %7 to %8 step %9 {
          %298 = arith.muli %297, %8 : index
          %299 = arith.addi %295, %298 : index
          %300 = arith.addi %299, %60 : index
          tile.prefetch %2[%300] : memref<256xf32>
          %301 = arith.addi %296, %297 : index
          %302 = arith.muli %297, %12 : index
          %303 = arith.addi %295, %302 : index
          scf.for %304 = %7 to %8 step %9 {
            %305 = arith.muli %304, %12 : index
            %306 = arith.muli %304, %15 : index
            %307 = arith.addi %301, %306 : index
            %308 = memref.load %6[%307] : memref<768xf32>
            %309 = vector.broadcast %308 : f32 to vector<4xf32>
            scf.for %310 = %7 to %12 step %12 {
              %311 = arith.addi %305, %310 : index
              %312 = vector.load %59[%311] : memref<8xf32>, vector<4xf32>
              %313 = arith.addi %303, %310 : index
              %314 = arith.addi %313, %50 : index
              %315 = vector.load %2[%314] : memref<256xf32>, vector<4xf32>
              %316 = vector.fma %309, %315, %312 : vector<4xf32>
              vector.store %316, %59[%311] : memref<8xf32>, vector<4xf32>
            } {unroll}
          } {unroll}
        }
        %317 = arith.muli %290, %15 : index
        scf.for %318 = %7 to %8 step %9 {
          %319 = arith.muli %318, %12 : index
          %320 = arith.addi %317, %319 : index
          scf.for %321 = %7 to %12 step %12 {
            %322 = arith.addi %319, %321 : index
            %323 = vector.load %59[%322] : memref<8xf32>, vector<4xf32>
            %324 = arith.addi %320, %321 : index
            vector.store %323, %5[%324] : memref<256xf32>, vector<4xf32>
          } {unroll}
        } {unroll}
        scf.for %325 = %7 to %12 step %12 {
          vector.store %42, %61[%325] : memref<4xf32>, vector<4xf32>
        } {unroll}
        scf.for %326 = %7 to %8 step %9 {
          %327 = arith.muli %326, %8 : index
          %328 = arith.addi %295, %327 : index
          %329 = arith.addi %328, %62 : index
          tile.prefetch %2[%329] : memref<256xf32>
          %330 = arith.addi %296, %326 : index
          %331 = arith.addi %330, %45 : index
          %332 = memref.load %6[%331] : memref<768xf32>
          %333 = vector.broadcast %332 : f32 to vector<4xf32>
          %334 = arith.muli %326, %12 : index
          %335 = arith.addi %295, %334 : index
          scf.for %336 = %7 to %12 step %12 {
            %337 = vector.load %61[%336] : memref<4xf32>, vector<4xf32>
            %338 = arith.addi %335, %336 : index
            %339 = arith.addi %338, %50 : index
            %340 = vector.load %2[%339] : memref<256xf32>, vector<4xf32>
            %341 = vector.fma %333, %340, %337 : vector<4xf32>
            vector.store %341, %61[%336] : memref<4xf32>, vector<4xf32>
          } {unroll}
        }
        scf.for %342 = %7 to %12 step %12 {
          %343 = vector.load %61[%342] : memref<4xf32>, vector<4xf32>
          %344 = arith.addi %317, %342 : index
          %345 = arith.addi %344, %43 : index
          vector.store %343, %5[%345] : memref<256xf32>, vector<4xf32>
        } {unroll}
      }
      scf.for %346 = %7 to %212 step %9 {
        %347 = arith.addi %66, %346 : index
        %348 = arith.divsi %347, %8 : index
        %349 = arith.remsi %347, %8 : index
        %350 = arith.muli %348, %8 : index
        %351 = arith.minsi %350, %9 : index
        %352 = arith.muli %346, %12 : index
        %353 = vector.load %5[%352] : memref<256xf32>, vector<4xf32>
        %354 = arith.addi %352, %15 : index
        %355 = vector.load %5[%354] : memref<256xf32>, vector<4xf32>
        %356 = arith.addi %352, %45 : index
        %357 = vector.load %5[%356] : memref<256xf32>, vector<4xf32>
        %358 = arith.addi %352, %25 : index
        %359 = vector.load %5[%358] : memref<256xf32>, vector<4xf32>
        %360 = arith.addi %352, %47 : index
        %361 = vector.load %5[%360] : memref<256xf32>, vector<4xf32>
        %362 = arith.addi %352, %48 : index
        %363 = vector.load %5[%362] : memref<256xf32>, vector<4xf32>
        %364 = arith.addi %352, %26 : index
        %365 = vector.load %5[%364] : memref<256xf32>, vector<4xf32>
        %366 = arith.addi %352, %49 : index
        %367 = vector.load %5[%366] : memref<256xf32>, vector<4xf32>
        %368 = arith.addi %352, %50 : index
        %369 = vector.load %5[%368] : memref<256xf32>, vector<4xf32>
        %370 = arith.addi %352, %27 : index
        %371 = vector.load %5[%370] : memref<256xf32>, vector<4xf32>
        %372 = arith.addi %352, %51 : index
        %373 = vector.load %5[%372] : memref<256xf32>, vector<4xf32>
        %374 = arith.addi %352, %52 : index
        %375 = vector.load %5[%374] : memref<256xf32>, vector<4xf32>
        %376 = arith.addi %352, %28 : index
        %377 = vector.load %5[%376] : memref<256xf32>, vector<4xf32>
        %378 = arith.addi %352, %53 : index
        %379 = vector.load %5[%378] : memref<256xf32>, vector<4xf32>
        %380 = arith.addi %352, %54 : index
        %381 = vector.load %5[%380] : memref<256xf32>, vector<4xf32>
        %382 = arith.addi %352, %29 : index
        %383 = vector.load %5[%382] : memref<256xf32>, vector<4xf32>
        %384 = arith.addf %361, %369 : vector<4xf32>
        %385 = arith.subf %361, %369 : vector<4xf32>
        %386 = arith.addf %353, %384 : vector<4xf32>
        %387 = arith.subf %385, %377 : vector<4xf32>
        %388 = arith.addf %363, %371 : vector<4xf32>
        %389 = arith.subf %363, %371 : vector<4xf32>
        %390 = arith.addf %355, %388 : vector<4xf32>
        %391 = arith.subf %389, %379 : vector<4xf32>
        %392 = arith.addf %365, %373 : vector<4xf32>
        %393 = arith.subf %365, %373 : vector<4xf32>
        %394 = arith.addf %357, %392 : vector<4xf32>
        %395 = arith.subf %393, %381 : vector<4xf32>
        %396 = arith.addf %367, %375 : vector<4xf32>
        %397 = arith.subf %367, %375 : vector<4xf32>
        %398 = arith.addf %359, %396 : vector<4xf32>
        %399 = arith.subf %397, %383 : vector<4xf32>
        %400 = arith.addf %390, %394 : vector<4xf32>
        %401 = arith.subf %390, %394 : vector<4xf32>
        %402 = arith.addf %386, %400 : vector<4xf32>
        %403 = arith.subf %401, %398 : vector<4xf32>
        %404 = arith.addf %391, %395 : vector<4xf32>
        %405 = arith.subf %391, %395 : vector<4xf32>
        %406 = arith.addf %387, %404 : vector<4xf32>
        %407 = arith.subf %405, %399 : vector<4xf32>
        %408 = arith.cmpi sge, %351, %350 : index
        %409 = arith.muli %351, %55 : index
        %410 = arith.muli %349, %56 : index
        %411 = arith.addi %409, %410 : index
        %412 = arith.addi %411, %12 : index
        %413 = arith.addi %411, %63 : index
        scf.if %408 {
          %414 = vector.extract %402[0] : f32 from vector<4xf32>
          %415 = memref.load %3[%12] : memref<5xf32>
          %416 = arith.addf %414, %415 : f32
          memref.store %416, %4[%412] : memref<60xf32>
          %417 = vector.extract %403[0] : f32 from vector<4xf32>
          %418 = memref.load %3[%12] : memref<5xf32>
          %419 = arith.addf %417, %418 : f32
          memref.store %419, %4[%413] : memref<60xf32>
        }
        %420 = vector.extract %406[0] : f32 from vector<4xf32>
        %421 = memref.load %3[%12] : memref<5xf32>
        %422 = arith.addf %420, %421 : f32
        %423 = arith.addi %411, %17 : index
        memref.store %422, %4[%423] : memref<60xf32>
        %424 = vector.extract %407[0] : f32 from vector<4xf32>
        %425 = memref.load %3[%12] : memref<5xf32>
        %426 = arith.addf %424, %425 : f32
        %427 = arith.addi %411, %64 : index
        memref.store %426, %4[%427] : memref<60xf32>
      }
    }
    func.return
  }
  pg.graph @main inputs [#pg.bytes<"x">, #pg.bytes<"u">, #pg.bytes<"bias">] {
  ^bb0(%x: tensor<1x5x6x2xf32>, %u: tensor<16x2x5xf32>, %bias: tensor<5xf32>):
    %p = tile.launch @move_256_f32_0 chunks 1 : i64 inplace [](%u) : (tensor<16x2x5xf32>) -> tensor<16x2x5xf32, #layout>
    %y = tile.launch @addf_subf_fma_60_f32_0 chunks 1 : i64 inplace [](%x, %p, %bias) : (tensor<1x5x6x2xf32>, tensor<16x2x5xf32, #layout>, tensor<5xf32>) -> tensor<1x3x4x5xf32>
    pg.return [#pg.bytes<"y">], %y : tensor<1x3x4x5xf32>
  }
}
