//! The cells of all blocks that this process has held, found by two loads, or by four beyond the first 2 MiB
//! of the domain. A cell belongs to a header line.

use once_cell::race::OnceBox;
use once_cell::sync::OnceCell;
use tensorferry_os::mapping::PAGE_BYTES;

use crate::cell::{Cell, CellWords};
use crate::class::LINE_BYTES;
use crate::geometry::Place;
use crate::handle::CellHeap;

const CELLS_PER_PAGE: usize = PAGE_BYTES / LINE_BYTES;

/// The cells of one page of headers.
type Page = [CellWords; CELLS_PER_PAGE];
/// Consecutive pages of cells, each made when it is first needed. As in a processor's page tables, each of
/// these tables is as long as a page of memory, so a process touches few pages.
type Pages = [OnceBox<Page>; PAGES_PER_TABLE];
/// A table of tables.
type Folder = [OnceBox<Pages>; TABLES_PER_FOLDER];

const PAGES_PER_TABLE: usize = 512;
const TABLES_PER_FOLDER: usize = 512;

/// The cells of all blocks of one domain that this process has ever held.
#[derive(Debug)]
pub(crate) struct CellTable {
    n_folders: usize,
    /// The table for the beginning of the domain, where the blocks of its maker are. Many processes hold
    /// nothing else, and need none of the rest.
    first: OnceBox<Pages>,
    folders: OnceCell<Box<[OnceBox<Folder>]>>,
}

impl CellTable {
    pub(crate) fn new(n_extents: usize, extent_len_bytes: usize) -> Self {
        let n_pages = n_extents * (extent_len_bytes / PAGE_BYTES);
        let n_folders = n_pages.div_ceil(PAGES_PER_TABLE * TABLES_PER_FOLDER);
        Self { n_folders, first: OnceBox::new(), folders: OnceCell::new() }
    }

    /// Returns the cell of the block at this place, and makes it if there is none. `heap` is called for each
    /// cell that is made. Returns `None` for an offset outside the domain, which no caller passes.
    pub(crate) fn cell(&self, place: Place, heap: impl Fn() -> CellHeap) -> Option<Cell<'_>> {
        let at = Index::of(place.header_offset_bytes);
        let table = if at.is_first() { &self.first } else { self.folder(&at)?.get(at.table)? };
        let page = table
            .get_or_init(|| Box::new([const { OnceBox::new() }; PAGES_PER_TABLE]))
            .get(at.page)?
            .get_or_init(|| Box::new(std::array::from_fn(|_| CellWords::new(heap()))));
        let cell = Cell::new(page.get(at.line)?);
        cell.store_place(place);
        Some(cell)
    }

    /// The folder of this place, which is made if there is none.
    fn folder(&self, at: &Index) -> Option<&Folder> {
        let folders = self.folders.get_or_init(|| (0..self.n_folders).map(|_| OnceBox::new()).collect());
        let folder = folders.get(at.folder)?;
        Some(folder.get_or_init(|| Box::new([const { OnceBox::new() }; TABLES_PER_FOLDER])))
    }

    /// Returns the cell of the block whose header is at this offset of the data area, if its place was found
    /// before. Makes no cells.
    #[inline]
    pub(crate) fn known(&self, header_offset_bytes: usize) -> Option<Cell<'_>> {
        let at = Index::of(header_offset_bytes);
        let table = if at.is_first() {
            &self.first
        } else {
            self.folders.get()?.get(at.folder)?.get()?.get(at.table)?
        };
        let words = table.get()?.get(at.page)?.get()?.get(at.line)?;
        words.has_place().then_some(Cell::new(words))
    }

    /// Visits the header offsets of all blocks that this process holds.
    pub(crate) fn each_held(&self, mut visit: impl FnMut(usize)) {
        self.each(|at, words| {
            if words.is_held() {
                visit(at);
            }
        });
    }

    /// Ends the exclusive rights of all handles that exist.
    pub(crate) fn revoke_all_exclusive(&self) {
        self.each(|_, words| words.revoke_exclusive());
    }

    fn each(&self, mut visit: impl FnMut(usize, &CellWords)) {
        let first = self.first.get().map(|pages| (0, pages));
        let others =
            entries(self.folders.get().map_or(&[], |folders| folders)).flat_map(|(folder, tables)| {
                entries(tables).map(move |(table, pages)| (folder * TABLES_PER_FOLDER + table, pages))
            });
        for (table, pages) in first.into_iter().chain(others) {
            for (page, cells) in entries(pages) {
                let start = (table * PAGES_PER_TABLE + page) * PAGE_BYTES;
                cells.iter().enumerate().for_each(|(line, words)| visit(start + line * LINE_BYTES, words));
            }
        }
    }
}

/// The position of a cell in the table.
struct Index {
    folder: usize,
    table: usize,
    page: usize,
    line: usize,
}

impl Index {
    #[inline]
    fn is_first(&self) -> bool {
        self.folder == 0 && self.table == 0
    }

    #[inline]
    fn of(header_offset_bytes: usize) -> Self {
        let page = header_offset_bytes / PAGE_BYTES;
        let table = page / PAGES_PER_TABLE;
        Self {
            folder: table / TABLES_PER_FOLDER,
            table: table % TABLES_PER_FOLDER,
            page: page % PAGES_PER_TABLE,
            line: (header_offset_bytes / LINE_BYTES) & (CELLS_PER_PAGE - 1),
        }
    }
}

/// The entries of a table that were made, each with its index.
fn entries<T>(table: &[OnceBox<T>]) -> impl Iterator<Item = (usize, &T)> {
    table.iter().enumerate().filter_map(|(at, entry)| Some((at, entry.get()?)))
}
